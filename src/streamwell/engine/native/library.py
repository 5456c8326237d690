"""Finds and loads the compiled helper."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_int32, c_int64, c_void_p
from pathlib import Path

import torch

from streamwell.engine.native import FOLDER
from streamwell.engine.native.structures import (
    BatchStruct,
    DeltaRuleStruct,
    LinearStruct,
    ShortConvStruct,
    StackStruct,
    StateScanStruct,
)

_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "sw_has_bfloat16": (c_int32, []),
    "sw_has_fast_pairs": (c_int32, []),
    "sw_pair_key_dim": (c_int64, [c_int64]),
    "sw_panel_bytes": (c_int64, [c_int32, c_int64]),
    "sw_coded_panel_bytes": (c_int64, [c_int32, c_void_p, c_int32, c_int64, c_int64]),
    "sw_pack": (
        None,
        [c_int32, c_void_p, c_int32, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p],
    ),
    "sw_pack_saved": (None, [c_int32, c_void_p, c_int64, c_int64, c_void_p]),
    "sw_workspace_bytes": (c_int64, [c_int64, c_int64]),
    "sw_linear": (
        None,
        [POINTER(LinearStruct), c_void_p, c_int64, c_void_p, c_int32, c_int32, c_void_p],
    ),
    "sw_unpack_rows": (None, [POINTER(LinearStruct), c_void_p, c_int64, c_void_p]),
    "sw_short_conv": (None, [POINTER(ShortConvStruct)]),
    "sw_state_scan": (None, [POINTER(StateScanStruct)]),
    "sw_delta_rule": (None, [POINTER(DeltaRuleStruct)]),
    "sw_pin_threads": (None, [POINTER(c_int32), c_int32]),
    "sw_decode": (None, [POINTER(StackStruct), POINTER(BatchStruct)]),
    "sw_encode": (None, [POINTER(StackStruct), POINTER(StackStruct), POINTER(BatchStruct)]),
}


def instruction_sets() -> list[str]:
    """The compiled variants that this processor can run, best first."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability == "AVX512":
        vnni = torch.cpu._is_vnni_supported()
        bf16 = vnni and torch.cpu._is_avx512_bf16_supported()
        amx = bf16 and torch.cpu._is_amx_tile_supported()
        found = {"amx": amx, "avx512bf16": bf16, "avx512vnni": vnni, "avx512": True, "avx2": True}
        return [name for name, is_there in found.items() if is_there]
    return ["avx2"] if capability == "AVX2" else []


def load(name: str) -> ctypes.CDLL | None:
    """One variant of the helper, or `None` where it was not compiled or lacks an OpenMP.

    One that was compiled from other sources lacks a function: it is as good as none.
    """
    try:
        library = ctypes.CDLL(str(FOLDER / f"kernels_{name}.so"))
        for symbol, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, symbol)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    if name == "amx" and not library.sw_has_bfloat16():  # the system keeps the registers to itself
        return None
    return library


def instruction_set(library: ctypes.CDLL) -> str:
    """Which variant this is."""
    return Path(library._name).stem.removeprefix("kernels_")


@functools.cache
def best() -> ctypes.CDLL | None:
    """The fastest variant that is there; `None` if there is none."""
    candidates = (load(name) for name in instruction_sets())
    return next((library for library in candidates if library is not None), None)


def pin_threads() -> None:
    """Give each compute thread a processor of its own, if there are as many threads as processors.

    OpenMP's threads spin while they wait for each other. When another process takes a processor for
    a while, two of them can meet on one that is left, and each then spins away the other's time: a
    step has been seen to take fifty times as long. The main threads of several engines, which do
    more than the others, are not all to have the same one.
    """
    library = best()
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if library is not None and 1 < torch.get_num_threads() == len(processors):
        first = os.getpid() % len(processors)
        processors = processors[first:] + processors[:first]
        library.sw_pin_threads((c_int32 * len(processors))(*processors), len(processors))
