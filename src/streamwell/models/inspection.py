"""Looks at a model folder before anything of it is loaded, and refuses what could do harm.

A folder is hostile input: it may ask for code to be run, point out of itself, lie about sizes, or
be damaged. Nothing is loaded here and no code of a folder runs; what passes is still loaded with
care by who loads it. Rules: docs/security.md, "Models from others".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError
from streamwell.models.claims import check_claims, walk
from streamwell.models.gguf_folder import check_unchanged
from streamwell.models.quantized import check_packages
from streamwell.models.small_files import check_sizes, read_if_there, read_object
from streamwell.models.values import check_config, check_generation
from streamwell.models.weights import is_gguf, read_headers

#: Fields that have Transformers run code of the folder, or fetch some: CVE-2026-4372 was one.
_CODE = re.compile(r"auto_map|trust_remote_code|_?(attn|experts)_implementation(_internal)?")


#: Fields by which Transformers would read other files than those that are looked at.
_OTHER_FILES = ("configuration_files", "fast_tokenizer_files", "transformers_weights")


def inspect_model(path: Path, *, trust_remote_code: bool = False) -> None:
    """Look at config, weights and generation settings of a folder; reads a few kB of most files.

    Raises:
        LoadError: says what is wrong, in which file.
    """
    _check_folder(path)
    check_unchanged(path)
    if (path / "adapter_config.json").exists():
        raise LoadError(f"{path} holds an adapter (adapter_config.json), not a whole model")
    config = read_object(path / "config.json")
    _refuse_code(path / "config.json", config, trust_remote_code=trust_remote_code)
    _refuse_other_files(path / "config.json", config)
    _check_generation(path / "generation_config.json", trust_remote_code=trust_remote_code)
    check_claims(config, read_headers(path), are_plain=not is_gguf(path))
    check_config(path / "config.json", config)
    check_packages(config)


def inspect_tokenizer(path: Path, *, trust_remote_code: bool = False) -> None:
    """Look at the files of a folder from which a tokenizer is made.

    Raises:
        LoadError: says what is wrong, in which file.
    """
    _check_folder(path)
    file = path / "tokenizer_config.json"
    config = read_if_there(file)
    _refuse_code(file, config, trust_remote_code=trust_remote_code)
    _refuse_other_files(file, config)
    _check_added(file, config)


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise LoadError(f"there is no such folder: {path}")
    check_sizes(path)


def _refuse_code(file: Path, content: Mapping[str, Any], *, trust_remote_code: bool) -> None:
    if trust_remote_code:
        return
    for where, name, value in walk(content):
        if value and _CODE.fullmatch(name):
            raise LoadError(
                f"{file} asks for code to be run: {where} is {value!r:.120}. It is run only with "
                "--trust-remote-code, and may then do all that you may do: read it first. If "
                f"Transformers knows this family by itself, the model loads without {name}."
            )


def _refuse_other_files(file: Path, config: Mapping[str, Any]) -> None:
    for name in _OTHER_FILES:
        if name in config:
            raise LoadError(f"{file} names other files in {name}")


#: Ids beyond this are none of any tokenizer; files may ask for one entry per id.
_MAX_TOKEN_ID = 1 << 24


def _check_added(file: Path, config: Mapping[str, Any]) -> None:
    added = config.get("added_tokens_decoder") or {}
    if not isinstance(added, dict):
        raise LoadError(f"{file}: added_tokens_decoder is no object")
    for token_id in added:
        if not (token_id.isdecimal() and len(token_id) < 10 and int(token_id) < _MAX_TOKEN_ID):
            raise LoadError(f"{file}: {token_id!r:.40} in added_tokens_decoder is no token id")


def _check_generation(file: Path, *, trust_remote_code: bool) -> None:
    config = read_if_there(file)
    _refuse_code(file, config, trust_remote_code=trust_remote_code)
    check_generation(file, config)
