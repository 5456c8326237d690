"""Tries out a tokenizer where it can do no harm: `python -m streamwell.text.tokenizer_trial FILE`.

A tokenizer is a program of sorts: a regular expression that takes hours for a line of text, or a
replacement that makes gigabytes of it, is written in a few characters. `tried_out` has a process
that may be lost load it first, and encode long runs of one character each: one of every kind, and
those that the file's own patterns speak of. What turns bad only for two characters in turn, or for
some long word, is not found in this way; then a request fails, or keeps a thread busy.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamwell.core.errors import LoadError
from streamwell.text.confinement import bare_environment, confine, cpu_limit

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: CPU times; real tokenizers take 2 s at most, and a few milliseconds.
_LOAD_CPU_S, _ENCODE_CPU_S = 30.0, 0.5
_MEMORY_BYTES = 4 << 30
#: A run is so long that cubic work is noticed, and quadratic work is not.
_RUN_CHARS = 1000
#: Ids, and characters of decoded text, per character of a run.
_MAX_GROWTH = 32
#: Characters from the file's patterns that get a run.
_MAX_FROM_PATTERNS = 128
#: The clock, for a process that waits for something.
_SILENCE_S = 120.0


@contextmanager
def tried_out(file: Path) -> Iterator[None]:
    """Load and use a `tokenizer.json` in another process, beside what the caller does within.

    Raises:
        LoadError: when that is done: it cannot be loaded, or takes more time or memory than any
            honest one.
    """
    command = (sys.executable, "-m", "streamwell.text.tokenizer_trial", str(file))
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Rust's last words
        env=bare_environment(),
    ) as process:
        try:
            yield
            stages, _ = process.communicate(timeout=_SILENCE_S)
        except subprocess.TimeoutExpired as error:
            raise LoadError(f"{file} cannot be tried out: it takes minutes") from error
        finally:
            process.kill()
    stage = (stages.decode("utf-8", "replace").splitlines() or ["starting"])[-1]
    if process.returncode == -signal.SIGPROF:
        raise LoadError(f"{file} takes too long, at {stage}")
    if process.returncode < 0:
        raise LoadError(f"{file} crashes or takes too much memory, at {stage}")
    if process.returncode:
        raise LoadError(f"{file} fails at {stage}")


def _characters(tokenizer: Tokenizer) -> Iterator[str]:
    """One character of each category and script, then those of the tokenizer's own patterns."""
    yield from "a1 \n.-'_我é"
    kinds: dict[str, str] = {}
    for character in map(chr, range(0x3000)):
        category = unicodedata.category(character)
        is_letter = category[0] == "L"  # whose names begin with their script
        kind = unicodedata.name(character).split()[0] if is_letter else category
        kinds.setdefault(kind, character)
    yield from kinds.values()
    parts = (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder)
    states = [json.loads(part.__getstate__()) for part in parts if part is not None]
    yield from sorted(set("".join(_patterns(states))))[:_MAX_FROM_PATTERNS]


def _patterns(state: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The patterns within a part of a tokenizer, and nothing of its tables."""
    if isinstance(state, list):
        for item in state:
            yield from _patterns(item)
    elif isinstance(state, dict):
        for name, value in state.items():
            if name in ("Regex", "String"):
                yield value
            else:
                yield from _patterns(value)


def _check_words(tokenizer: Tokenizer) -> None:
    """A run is short for a model of the WordPiece kind, whose work grows with a word's cube."""
    limit = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    if limit > _RUN_CHARS:
        raise ValueError(f"max_input_chars_per_word is {limit}")


def _try(tokenizer: Tokenizer, run: str) -> None:
    ids = tokenizer.encode(run).ids
    text = tokenizer.decode(ids)
    if max(len(ids), len(text)) > _MAX_GROWTH * _RUN_CHARS:
        raise ValueError("more comes out than went in")


def _try_all(content: bytes) -> Iterator[str]:
    """Yields what comes next, before it is done."""
    from tokenizers import Tokenizer

    confine(memory_bytes=_MEMORY_BYTES)
    yield "loading"
    with cpu_limit(_LOAD_CPU_S):
        tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        _check_words(tokenizer)
        characters = dict.fromkeys(_characters(tokenizer))
    for character in characters:
        yield f"a run of {character!a}"
        with cpu_limit(_ENCODE_CPU_S):
            _try(tokenizer, character * _RUN_CHARS + "\x01")


def main() -> None:
    """Entry point of the process: exit status 0 if all is well; its last line is where it was."""
    stage = "starting"
    try:
        for stage in _try_all(Path(sys.argv[1]).read_bytes()):
            print(stage, flush=True)  # noqa: T201 - to `tried_out`
    except BaseException as error:  # panics of Rust are no `Exception`
        print(f"{stage}: {str(error)[:200]}", flush=True)  # noqa: T201
        raise


if __name__ == "__main__":
    main()
