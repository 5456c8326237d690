"""Models in the formats that the peers need, made once from a model folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers.places import LLAMA_PROGRAMS, LLAMA_SOURCE, MODELS, OPENVINO_PROGRAMS

#: Types that llama.cpp's converter writes itself; its quantizer makes the others out of bf16.
_CONVERTED = ("f32", "f16", "bf16")


def gguf(folder: Path, kind: str) -> Path:
    """The model for llama.cpp, e.g. as `bf16`, `q8_0` or `q4_0`.

    Raises:
        RuntimeError: llama.cpp's programs cannot convert it.
    """
    place = _place(folder) / f"{kind}.gguf"
    if place.exists():
        return place
    if kind in _CONVERTED:
        program = [sys.executable, "-m", "bench.peers.convert_gguf", str(LLAMA_SOURCE)]
        return _make(place, [*program, str(folder), "--outtype", kind, "--outfile"], [])
    quantize = [str(LLAMA_PROGRAMS / "llama-quantize"), str(gguf(folder, "bf16"))]
    return _make(place, quantize, [kind])


def openvino(folder: Path, kind: str) -> Path:
    """The model for OpenVINO, with `fp16`, `int8` or `int4` weights.

    Raises:
        RuntimeError: optimum-intel cannot export it.
    """
    place = _place(folder) / f"openvino-{kind}"
    if place.exists():
        return place
    export = [str(OPENVINO_PROGRAMS / "optimum-cli"), "export", "openvino", "--model", str(folder)]
    options = ["--task", "text-generation-with-past", "--weight-format", kind]
    # the tool's own 128 does not divide every model's sizes, and it refuses those
    options += ["--group-size", "64"] if kind == "int4" else []
    return _make(place, [*export, *options], [])


def _place(folder: Path) -> Path:
    """A folder's own place: two folders may bear the same name."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
    return MODELS / f"{folder.name}-{digest}"


def _make(place: Path, before: Sequence[str], after: Sequence[str]) -> Path:
    """Run a converter with its output beside `place`, and move it there: it is whole or not."""
    print(f"making {place.name} of {place.parent.name} ...", flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=".making-"))
    try:
        result = scratch / place.name
        done = subprocess.run(
            [*before, str(result), *after],
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{place.name} cannot be made: {done.stderr.strip()[-400:]}")
        result.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place
