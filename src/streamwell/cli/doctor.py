"""`streamwell doctor`: what is installed, what the machine offers, what to do."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from json import dumps
from pathlib import Path

from rich.text import Text

from streamwell import __version__
from streamwell.cli.address import usual_port
from streamwell.cli.tables import print_table
from streamwell.core.errors import InvalidRequest
from streamwell.models import BUILT_IN, built_in_path
from streamwell.models.cores import num_cores
from streamwell.models.memory import PROCESS_BYTES, available_bytes
from streamwell.settings import Settings, default_data_dir

_PACKAGES = ("torch", "transformers", "tokenizers", "fastapi", "uvicorn", "sqlalchemy")
#: What more can be done with packages that are not always there: by their extra.
_OPTIONAL = {
    "gguf": "gguf",
    "postgres": "psycopg",
    "vllm": "vllm",
    "ray": "ray",
    "plot": "matplotlib",
}
_GIB = 1 << 30
_MIN_MEMORY_GIB, _MIN_DISK_GIB = 1, 1


@dataclass(frozen=True, slots=True)
class Fact:
    """One finding, and what to do about it, if anything."""

    name: str
    found: str
    advice: str = ""
    #: The server cannot start, or not be used, like this.
    is_problem: bool = False


def run(*, as_json: bool) -> None:
    """Print facts and advice; exits with 1 if something stands in the way."""
    facts = list(_facts())
    if as_json:
        print(dumps({"version": __version__, "facts": [asdict(fact) for fact in facts]}))
    else:
        _print_table(facts)
    sys.exit(1 if any(fact.is_problem for fact in facts) else 0)


def _print_table(facts: list[Fact]) -> None:
    rows = ((fact.name, fact.found, _advice(fact)) for fact in facts)
    print_table(("what", "found", "advice"), rows, title=f"streamwell {__version__}")


def _advice(fact: Fact) -> Text:
    return Text(f"! {fact.advice}", "bold red") if fact.is_problem else Text(fact.advice)


def _facts() -> Iterator[Fact]:
    yield Fact("python", platform.python_version())
    yield Fact("platform", platform.platform())
    yield from _package_facts()
    yield from _machine_facts()
    yield from _compute_facts()
    yield from _model_facts()
    yield _data_dir_fact()
    yield _port_fact()


def _package_facts() -> Iterator[Fact]:
    for package in _PACKAGES:
        found = _version(package)
        yield Fact(
            package, found or "missing", "" if found else f"pip install {package}", not found
        )
    for extra, package in _OPTIONAL.items():
        found = _version(package)
        advice = "" if found else f"only if wanted: pip install 'streamwell[{extra}]'"
        yield Fact(package, found or "missing", advice)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _machine_facts() -> Iterator[Fact]:
    yield Fact("cores", str(num_cores()))
    free_bytes = available_bytes()
    if free_bytes < _MIN_MEMORY_GIB * _GIB:
        advice, is_problem = f"at least {_MIN_MEMORY_GIB} GiB are needed", True
    else:
        # two bytes per parameter, and a fifth of the room for the cache of keys and values
        billions = 0.8 * (free_bytes - PROCESS_BYTES) / 2e9
        advice, is_problem = f"room for a model of about {billions:.1f} B parameters", False
    yield Fact("free memory", f"{free_bytes / _GIB:.1f} GiB", advice, is_problem)


def _compute_facts() -> Iterator[Fact]:
    import torch

    gpus = torch.cuda.device_count()
    names = ", ".join(_gpu(index) for index in range(gpus))
    yield Fact("gpus", names or "none", "" if gpus else "generation runs on the CPU")
    if problem := _gpu_problem(gpus):
        yield Fact("nvidia driver", "present", problem)
    from streamwell.engine.native.library import instruction_sets, load

    usable = instruction_sets()
    yield Fact(
        "instruction sets",
        ", ".join(usable) or platform.machine(),
        "" if usable else "the native helper wants x86-64 with AVX2; PyTorch computes",
    )
    has_bf16 = "avx512bf16" in usable
    advice = "" if has_bf16 else "float32 is used"
    yield Fact("fast bfloat16 on CPU", "yes" if has_bf16 else "no", advice)
    compiled = next((name for name in usable if load(name) is not None), "")
    advice = "" if compiled else "PyTorch computes, more slowly; reinstall with GCC (g++)"
    yield Fact("native helper", compiled or "none", advice)


def _gpu(index: int) -> str:
    import torch

    properties = torch.cuda.get_device_properties(index)
    return f"{properties.name} ({properties.total_memory / _GIB:.0f} GiB)"


def _gpu_problem(num_gpus: int) -> str:
    """There is a card, and PyTorch cannot use it."""
    if num_gpus or shutil.which("nvidia-smi") is None:
        return ""
    return "but PyTorch sees no GPU: install its build for CUDA, from pytorch.org"


def _model_facts() -> Iterator[Fact]:
    missing = [
        name for name in BUILT_IN if not (built_in_path(name) / "model.safetensors").is_file()
    ]
    advice = "reinstall" if missing else ""
    found = f"{', '.join(missing)} missing" if missing else "present"
    yield Fact("built-in models", found, advice, bool(missing))
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        yield Fact("hub", "offline (HF_HUB_OFFLINE)", f"models: {constants.HF_HUB_CACHE}")
    else:
        yield Fact("hub", constants.ENDPOINT, f"models: {constants.HF_HUB_CACHE}")


def _data_dir_fact() -> Fact:
    folder = Path(os.environ.get("STREAMWELL_DATA_DIR") or default_data_dir()).expanduser()
    try:
        if folder.exists() and not folder.is_dir():
            return Fact("data folder", str(folder), "is a file; give --data-dir", is_problem=True)
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
        is_writable = os.access(nearest, os.W_OK)
    except PermissionError:  # it is in a folder that others may not look into
        is_writable = False
    if not is_writable:
        return Fact("data folder", str(folder), "not writable; give --data-dir", is_problem=True)
    free_gib = shutil.disk_usage(nearest).free / _GIB
    found = f"{folder} ({free_gib:.0f} GiB free)"
    if free_gib < _MIN_DISK_GIB:
        return Fact("data folder", found, "make room, or give --data-dir", is_problem=True)
    return Fact("data folder", found)


def _port_fact() -> Fact:
    """Whether somebody listens where the server would without flags."""
    host = os.environ.get("STREAMWELL_HOST") or Settings().host
    try:
        port = usual_port()
    except InvalidRequest as error:
        return Fact("port", os.environ["STREAMWELL_PORT"], str(error), is_problem=True)
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except socket.gaierror:
        return Fact("host", host, "is no address; see STREAMWELL_HOST", is_problem=True)
    except OSError:
        return Fact(f"port {port}", "free")
    return Fact(f"port {port}", "taken", "a server may run already; else set STREAMWELL_PORT")
