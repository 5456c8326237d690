"""Makes the `tokenizer.json` of a GGUF file: `python -m streamwell.text.gguf_tokenizer FILE`.

Such a file has the words, their ranks and kinds, and a name for how text is cut up before; what
else makes a tokenizer is what Transformers knows of that name. It is done once, in a process that
may be lost, and kept in the folder of the file (`models.gguf_folder`).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from streamwell.core.errors import LoadError
from streamwell.models.gguf_config import end_ids
from streamwell.models.gguf_folder import WEIGHTS, tokenizer_config_of
from streamwell.models.gguf_header import read_gguf
from streamwell.text.confinement import bare_environment, confine, cpu_limit
from streamwell.text.gguf_spelling import CONTROL, respelled

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

log = structlog.get_logger()

_MEMORY_BYTES, _CPU_S = 4 << 30, 120.0
#: Of its answer; JSON within JSON takes more than the file will.
_MAX_BYTES = 128 << 20
#: Ways to cut up text that are GPT-2's, but for digits, which stand alone.
_LONE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "exaone", "codeshell", "minerva-7b")
#: Those that are GPT-2's.
_GPT2 = (
    "default",
    "gpt-2",
    "gpt2",
    "phi-2",
    "olmo",
    "roberta-bpe",
    "jais",
    "trillion",
    "granite-docling",
    "exaone4",
)
#: Those that are another one's.
_ALSO_CALLED = {"glm4": "llama3", "chatglm-bpe": "llama3", "stablelm2": "qwen2", "hunyuan": "qwen2"}
#: Seed's, which is none of these: as Qwen2's, but no line break goes with what stands before it.
_SEED, _SEED_SPLIT = (
    "seed-coder",
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
)


def make_tokenizer(folder: Path) -> None:
    """Write the `tokenizer.json` of a folder whose weights are a GGUF file; other folders stay.

    Raises:
        LoadError: none can be made, or not within time and memory that an honest one takes.
    """
    file = folder / WEIGHTS
    if (folder / "tokenizer.json").exists() or not file.exists():
        return
    made = _made(file)
    if made["unknown"]:
        log.warning(
            "text is cut up as GPT-2 does: the file's own way is not known", way=made["unknown"]
        )
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as new:
        new.write(made["tokenizer"])
    Path(new.name).replace(folder / "tokenizer.json")


def _made(file: Path) -> dict[str, Any]:
    command = (sys.executable, "-m", "streamwell.text.gguf_tokenizer", str(file))
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=bare_environment(),
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read(_MAX_BYTES + 1)  # it ends: its time of the CPU is limited
        if len(output) > _MAX_BYTES:
            process.kill()
    if process.returncode == -signal.SIGPROF:
        raise LoadError(f"the tokenizer of {file} takes too long to make")
    if process.returncode < 0 or len(output) > _MAX_BYTES:
        raise LoadError(f"making the tokenizer of {file} crashes or takes too much memory")
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError as error:
        raise LoadError(f"making the tokenizer of {file} failed") from error
    if "error" in answer:
        raise LoadError(f"no tokenizer can be made from {file}: {answer['error']}")
    return answer


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer as JSON, and the way to cut up text if nobody here knows it."""
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf import convert_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import (
        GGUF_PRE_TOKENIZER_SPLITS,
        GGUF_TOKENIZER_MAPPING,
    )

    names = GGUF_TOKENIZER_MAPPING["tokenizer"]
    parts = {
        name: list(value) if isinstance(value := metadata[f"tokenizer.{key}"], tuple) else value
        for key, name in names.items()
        if f"tokenizer.{key}" in metadata
    }
    _check_parts(parts)
    if "token_type" in parts:  # what ends an answer is no text, whatever kind the file says
        for token_id in end_ids(metadata):
            if 0 <= token_id < len(parts["token_type"]):
                parts["token_type"][token_id] = CONTROL
    architecture = metadata["general.architecture"]
    way = str(parts.get("pre_tokenizer_type", "default"))
    same = _ALSO_CALLED.get(way, way)
    tokenizer, _ = convert_gguf_tokenizer(architecture, {**parts, "pre_tokenizer_type": same})
    tokenizer = respelled(tokenizer, architecture, parts)
    is_gpt2 = parts.get("tokenizer_type") == "gpt2"
    split = _own_split(way) if is_gpt2 else None
    if split is not None:
        tokenizer.pre_tokenizer = split
    is_known = not is_gpt2 or split or way in _GPT2 or same in GGUF_PRE_TOKENIZER_SPLITS
    # puts in the tokens that stand around every text
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokenizer_config_of(metadata))
    return {
        "tokenizer": whole.backend_tokenizer.to_str(),
        "unknown": None if is_known else way,
    }


def _own_split(way: str) -> PreTokenizer | None:
    """How text is cut up in a way that Transformers does not know."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    if way in _LONE_DIGITS:
        return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    if way == _SEED:
        split = Split(Regex(_SEED_SPLIT), behavior="isolated")
        return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    return None


def _check_parts(parts: Mapping[str, Any]) -> None:
    tokens = parts.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise ValueError("it has no tokens")
    if len(set(tokens)) < len(tokens):
        raise ValueError("it has a token twice")
    if "merges" not in parts and "scores" not in parts:
        raise ValueError("it has neither merges nor scores of its tokens")
    for name in ("scores", "token_type"):
        if name in parts and len(parts[name]) != len(tokens):
            raise ValueError(f"it has {len(parts[name])} {name} for {len(tokens)} tokens")


def main() -> None:
    """Entry point of the process: says in JSON what was made, or why nothing was."""
    from transformers import PreTrainedTokenizerFast  # noqa: F401 - no file can be opened soon
    from transformers.integrations.gguf import gguf_tokenizer_mapping  # noqa: F401

    metadata = read_gguf(Path(sys.argv[1])).metadata
    with contextlib.redirect_stdout(sys.stderr):
        confine(memory_bytes=_MEMORY_BYTES)
        try:
            with cpu_limit(_CPU_S):
                answer = _tokenizer(metadata)
        except BaseException as error:  # noqa: BLE001 - panics of Rust are no `Exception`
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
