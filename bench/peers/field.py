"""The field: who takes part, at which precision, and what each of them really computes in."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.cases import Case, Measures, Runner
from bench.child import Child, command_of
from bench.peers import conversion, llama
from bench.peers.places import (
    OPENVINO_PROGRAMS,
    VLLM_PROGRAMS,
    installed_version,
    openmp_places,
    vllm_places,
)
from bench.report import OURS
from bench.roofline import bound, measure_machine, model_size
from bench.server import ours, transformers_serve
from bench.settings import AS_SAVED, QUANTIZED
from streamwell.models.resolve import resolve
from training.server_process import Target


@dataclass(frozen=True, slots=True)
class Setup:
    """What everybody gets alike."""

    folder: Path
    #: `float32` or `bfloat16`, the machine's own choice or the caller's; `int8` or `int4`; or that
    #: of a GGUF file, which we and llama.cpp both take.
    precision: str
    num_threads: int
    num_clients: int
    data_dir: Path


#: A contender, ready to run once the context is entered.
Start = AbstractContextManager[Runner]


@dataclass(frozen=True, slots=True)
class Peer:
    """One who can take part."""

    #: Its name in the tables by precision; says so where it computes in something else.
    names: Mapping[str, str]
    offline: Callable[[Setup, str], Start] | None = None
    server: Callable[[Setup, str], Target] | None = None
    #: Why it cannot be run, if it cannot.
    missing: Callable[[], str | None] = lambda: None


class Roofline:
    """What the machine allowed at this minute: the share of it that we reach is our lead."""

    def __init__(self, name: str, folder: Path, precision: str) -> None:
        self.name = name
        self._precision = precision
        self._size = model_size(folder)

    def measure(self, case: Case, seed: str) -> Measures:
        return bound(self._size, measure_machine(), self._precision, case)


def _contender(name: str) -> Callable[[Setup, str], Start]:
    """One of `bench.contenders`."""

    def start(setup: Setup, label: str) -> Start:
        command = command_of(name, setup.folder, setup.precision, setup.num_threads)
        return Child(label, command, openmp_places(setup.num_threads))

    return start


def _transformers_server(setup: Setup, label: str) -> Target:
    batching, _ = transformers_serve(
        setup.folder, setup.precision, openmp_places(setup.num_threads)
    )
    return batching


def _our_engine(setup: Setup, label: str) -> Start:
    return _contender("streamwell")(_of_same_file(setup), label)


def _our_server(setup: Setup, _label: str) -> Target:
    setup = _of_same_file(setup)
    return ours(setup.folder, setup.precision, setup.data_dir, setup.num_threads)


def _of_same_file(setup: Setup) -> Setup:
    """Where the file is llama.cpp's own, we take it as it is."""
    if setup.precision != SAME_FILE:
        return setup
    file = conversion.gguf(setup.folder, SAME_FILE)
    return replace(setup, folder=resolve(str(file)), precision=AS_SAVED)


#: The type of GGUF files that most people have.
SAME_FILE = "q4_k_m"
#: What llama.cpp calls our precisions.
GGUF_KINDS = {
    "float32": "bf16",
    "bfloat16": "bf16",
    "int8": "q8_0",
    "int4": "q4_0",
    SAME_FILE: SAME_FILE,
}


def _llama_bench(kinds: Mapping[str, str]) -> Callable[[Setup, str], Start]:
    def start(setup: Setup, label: str) -> Start:
        model = conversion.gguf(setup.folder, kinds[setup.precision])
        return contextlib.nullcontext(llama.BatchedBench(label, model, setup.num_threads))

    return start


def _llama_server(kinds: Mapping[str, str]) -> Callable[[Setup, str], Target]:
    def target(setup: Setup, label: str) -> Target:
        model = conversion.gguf(setup.folder, kinds[setup.precision])
        return llama.server(label, model, setup.num_threads, setup.num_clients)

    return target


#: The weights in OpenVINO's file, and the options of its pipeline.
OPENVINO_KINDS = {
    "float32": ("fp16", ("INFERENCE_PRECISION_HINT=f32",)),
    "bfloat16": ("fp16", ("INFERENCE_PRECISION_HINT=bf16",)),
    "int8": ("int8", ()),
    "int4": ("int4", ()),
}


def _openvino(setup: Setup, label: str) -> Start:
    kind, options = OPENVINO_KINDS[setup.precision]
    model = conversion.openvino(setup.folder, kind)
    python = (str(OPENVINO_PROGRAMS / "python"), "-m", "bench.peers.openvino_child")
    return Child(label, (*python, str(model), str(setup.num_threads), *options))


def _vllm(setup: Setup, label: str) -> Start:
    python = (str(VLLM_PROGRAMS / "python"), "-m", "bench.peers.vllm_child")
    command = (*python, str(setup.folder), setup.precision)
    return Child(label, command, vllm_places(setup.num_threads))


def _vllm_server(setup: Setup, label: str) -> Target:
    # the package's own `vllm` command looks for metadata under another name than it has
    python = (str(VLLM_PROGRAMS / "python"), "-m", "vllm.entrypoints.openai.api_server")
    command = (*python, "--model", str(setup.folder), "--dtype", setup.precision)
    return Target(label, command, str(setup.folder), vllm_places(setup.num_threads))


def _roofline(setup: Setup, label: str) -> Start:
    return contextlib.nullcontext(Roofline(label, setup.folder, setup.precision))


def _roofline_bf16(setup: Setup, label: str) -> Start:
    return contextlib.nullcontext(Roofline(label, setup.folder, "bfloat16"))


def _uninstalled(peer: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        if installed_version(peer):
            return None
        return f"not installed: make bench-peers-install, or bench/peers/install.sh {peer}"

    return missing


def _without_accelerate() -> str | None:
    if importlib.util.find_spec("accelerate") is None:
        return "not installed: pip install --group bench"
    return None


_DTYPES = ("float32", "bfloat16")

#: Everybody, by the name that `--peers` takes; ours first.
FIELD = {
    OURS: Peer(
        dict.fromkeys((*_DTYPES, *QUANTIZED, SAME_FILE), OURS),
        _our_engine,
        _our_server,
    ),
    "transformers": Peer(
        dict.fromkeys(_DTYPES, "generate"),
        _contender("generate"),
        _transformers_server,
        _without_accelerate,
    ),
    "llama": Peer(
        {
            # its kernels widen bf16 weights where the hardware cannot multiply them
            "float32": "llama.cpp bf16 file",
            "bfloat16": "llama.cpp bf16",
            "int8": "llama.cpp Q8_0",
            "int4": "llama.cpp Q4_0",
            SAME_FILE: "llama.cpp, same file",
        },
        _llama_bench(GGUF_KINDS),
        _llama_server(GGUF_KINDS),
        _uninstalled("llama"),
    ),
    # without bfloat16 hardware it is faster from a file that loses some of bf16's range
    "llama-f16": Peer(
        {"float32": "llama.cpp f16 file"},
        _llama_bench({"float32": "f16"}),
        _llama_server({"float32": "f16"}),
        _uninstalled("llama"),
    ),
    "openvino": Peer(
        {
            "float32": "OpenVINO fp16 file",
            "bfloat16": "OpenVINO bf16",
            "int8": "OpenVINO int8",
            "int4": "OpenVINO int4",
        },
        _openvino,
        missing=_uninstalled("openvino"),
    ),
    "vllm": Peer(
        {"float32": "vLLM float32", "bfloat16": "vLLM bfloat16"},
        _vllm,
        _vllm_server,
        _uninstalled("vllm"),
    ),
    "roofline": Peer(dict.fromkeys((*_DTYPES, *QUANTIZED), "roofline"), _roofline),
    # of float32 arithmetic over a file of half its size
    "roofline-bf16": Peer({"float32": "roofline, bf16 weights"}, _roofline_bf16),
}
