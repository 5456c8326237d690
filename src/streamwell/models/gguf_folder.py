"""A folder in the Hugging Face layout for a GGUF file, which has all of it in one.

What is small is written out once, in the user's cache; the weights are a link to the file, or one
to each of its parts. So all else sees a model folder like any other. The tokenizer is made by who
needs it first (`text.gguf_tokenizer`), for that takes more than the standard library.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError
from streamwell.models import cache_dir
from streamwell.models.gguf_config import config_of, generation_config_of
from streamwell.models.gguf_parts import GgufModel, part_names, read_gguf_parts

#: What the weights are called in such a folder, or their first part, and what the others are.
WEIGHTS = "model.gguf"
OTHER_WEIGHTS = "model-*-of-*.gguf"
_PART = "model-{:05}-of-{:05}.gguf"
#: Goes into the names of the folders: changes with what is written into them.
_VERSION = "4"
#: Ways to cut up text that are like Llama 3's: a text begins with a token of its own where the
#: file does not say, and a word that is a token needs no merges.
LLAMA_3_WAYS = (
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "tekken",
)
_SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def only_gguf(folder: Path) -> Path | None:
    """The GGUF file of a folder that has no other weights; `None` for other folders, and for ours.

    Raises:
        LoadError: there are several.
    """
    if folder.parent == cache_dir("gguf") or any(folder.glob("*.safetensors")):
        return None
    files = sorted({folder / part_names(file.name)[0] for file in folder.glob("*.gguf")})
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:8])
        raise LoadError(f"{folder} has {len(files)} GGUF files; give the path of one: {names}")
    return files[0] if files else None


def folder_of_gguf(file: Path) -> Path:
    """The folder for a GGUF file; written if it is not there yet.

    Raises:
        LoadError: the file is damaged or cannot be served, or the cache cannot be written.
    """
    model = read_gguf_parts(file.absolute())
    file, folder = model.file, cache_dir("gguf") / _name_of(model)
    if folder.is_dir():
        return folder
    try:
        contents: dict[str, Mapping[str, Any]] = {
            "config.json": config_of(model),
            "generation_config.json": generation_config_of(model),
            "tokenizer_config.json": tokenizer_config_of(model.metadata),
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise LoadError(f"{file} has a value of the wrong type: {error}") from error
    except OSError as error:
        raise LoadError(f"{file} cannot be read: {error.strerror}") from error
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as base:
            new = Path(base) / "folder"
            new.mkdir()
            for name, content in contents.items():
                (new / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
            for name, part in _links(model):
                (new / name).symlink_to(part)
            _move(new, folder)
    except OSError as error:
        raise LoadError(f"cannot write {folder}: {error.strerror}") from error
    return folder


def check_unchanged(folder: Path) -> None:
    """Compare a GGUF file with the folder that was made for it; other folders are as they are.

    Raises:
        LoadError: it says something else by now.
    """
    file = given(folder)
    if file != folder and folder.name != _name_of(read_gguf_parts(file)):
        raise LoadError(f"{file} has changed since the server was started; start it again")


def given(folder: Path) -> Path:
    """What a person gave: the GGUF file that a folder of ours was made for, or the folder."""
    is_ours = folder.parent == cache_dir("gguf") and (folder / WEIGHTS).is_symlink()
    return (folder / WEIGHTS).readlink() if is_ours else folder


def _name_of(model: GgufModel) -> str:
    said = (_VERSION, str(model.file), *(part.digest for part in model.parts))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:32]


def _links(model: GgufModel) -> Iterator[tuple[str, Path]]:
    """What each part is called in the folder, by their numbers; and where it is."""
    yield WEIGHTS, model.file
    for number, part in enumerate(model.parts[1:], 2):
        yield _PART.format(number, len(model.parts)), part.file


def _move(new: Path, folder: Path) -> None:
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another server was faster
            raise


def tokenizer_config_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Special tokens and the chat template, as `tokenizer_config.json` has them."""
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, key in _SPECIAL.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}")
        if type(token_id) is int and 0 <= token_id < len(tokens):
            config[name] = tokens[token_id]
    # what llama.cpp does where the file does not say
    is_sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    begins = is_sentencepiece or metadata.get("tokenizer.ggml.pre") in LLAMA_3_WAYS
    config["add_bos_token"] = bool(metadata.get("tokenizer.ggml.add_bos_token", begins))
    config["add_eos_token"] = bool(metadata.get("tokenizer.ggml.add_eos_token", False))
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        config["chat_template"] = template
    return config
