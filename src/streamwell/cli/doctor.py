"""`streamwell doctor`: what is installed, what the machine offers, what to do."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table

from streamwell import __version__
from streamwell.models import brooklet_path
from streamwell.settings import default_data_dir

_PACKAGES = ("torch", "transformers", "tokenizers", "fastapi", "uvicorn", "sqlalchemy")


def run() -> None:
    """Print a table of facts and advice; exits with 1 if something stands in the way."""
    table = Table("what", "found", "advice", title=f"streamwell {__version__}")
    is_fine = True
    for name, found, advice in _facts():
        table.add_row(name, found, advice)
        is_fine &= not advice.startswith("!")
    Console().print(table)
    sys.exit(0 if is_fine else 1)


def _facts() -> Iterator[tuple[str, str, str]]:
    """Rows of name, finding, advice; advice that begins with `!` is a problem."""
    yield "python", platform.python_version(), ""
    yield "platform", platform.platform(), ""
    for package in _PACKAGES:
        try:
            yield package, version(package), ""
        except PackageNotFoundError:
            yield package, "missing", f"! pip install {package}"
    yield from _device_facts()
    weights = brooklet_path() / "model.safetensors"
    is_there = weights.is_file()
    yield "built-in model", "present" if is_there else "missing", "" if is_there else "! reinstall"
    yield _data_dir_fact()


def _device_facts() -> Iterator[tuple[str, str, str]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "cores", str(cores), ""
    if hasattr(os, "sysconf"):
        gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        yield "memory", f"{gib:.1f} GiB", "" if gib > 2 else "! at least 2 GiB are needed"
    import torch

    gpus = torch.cuda.device_count()
    yield "gpus", str(gpus), "" if gpus else "none: generation runs on the CPU"
    has_bf16 = bool(torch.cpu._is_avx512_bf16_supported())
    yield "fast bfloat16 on CPU", "yes" if has_bf16 else "no", "" if has_bf16 else "float32 is used"
    yield _helper_fact()


def _helper_fact() -> tuple[str, str, str]:
    from streamwell.engine.native.library import instruction_sets, load

    found = [name for name in instruction_sets() if load(name) is not None]
    advice = "PyTorch computes, more slowly; reinstall with a C++ compiler"
    return "native helper", found[0] if found else "none", "" if found else advice


def _data_dir_fact() -> tuple[str, str, str]:
    folder = default_data_dir()
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    is_writable = os.access(nearest, os.W_OK)
    return "data folder", str(folder), "" if is_writable else "! not writable; give --data-dir"
