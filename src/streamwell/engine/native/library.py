"""Finds and loads the compiled helper, and mirrors its structures.

The structures are those of `schemes.h`, `rows.h`, `attention.h`, `low_rank.h` and `stack.h`, field
by field.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "lib"


class Kind(IntEnum):
    """How weights are stored."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    INT8 = 3
    INT4 = 4
    #: Multiplied as it is, with activations rounded to bfloat16.
    BFLOAT16_PAIRS = 5


class Epilogue(IntEnum):
    """What becomes of a linear layer's result: stored, added, or gating the one beside it."""

    STORE = 0
    ACCUMULATE = 1
    GATE = 2


class Activation(IntEnum):
    """What is done to what is stored, or to a gate."""

    NONE = 0
    SILU = 1
    GELU_TANH = 2
    GELU = 3
    RELU = 4


class LinearStruct(ctypes.Structure):
    """Packed weights `[n, k]` and what goes with them."""

    _fields_ = [
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
        ("n", c_int64),
        ("k", c_int64),
        ("kind", c_int32),
        ("factor", c_float),
    ]


class CacheStruct(ctypes.Structure):
    """Keys and values of one layer."""

    _fields_ = [("keys", c_void_p), ("values", c_void_p)]


class HeadsStruct(ctypes.Structure):
    """How many heads, and their width."""

    _fields_ = [("queries", c_int64), ("kv", c_int64), ("dim", c_int64)]


class NormStruct(ctypes.Structure):
    """A norm: with biases layer norm, without root mean square; without weights none."""

    _fields_ = [("weight", c_void_p), ("bias", c_void_p)]


class NormsStruct(ctypes.Structure):
    """The norms of a part of a block."""

    _fields_ = [("input", NormStruct), ("output", NormStruct), ("sum", NormStruct)]


class BiasStruct(ctypes.Structure):
    """What is added to scores, by head and distance."""

    _fields_ = [("table", c_void_p), ("stride", c_int64), ("origin", c_int64)]


class LayerStruct(ctypes.Structure):
    """One block's weights."""

    _fields_ = [
        ("qkv", LinearStruct),
        ("out", LinearStruct),
        ("up", LinearStruct),
        ("down", LinearStruct),
        ("attention", NormsStruct),
        ("feed_forward", NormsStruct),
        ("query_norm", NormStruct),
        ("key_norm", NormStruct),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("bias", BiasStruct),
        ("cache", CacheStruct),
        ("window", c_int64),
        ("cross_query", LinearStruct),
        ("cross_key_value", LinearStruct),
        ("cross_out", LinearStruct),
        ("cross", NormsStruct),
    ]


class LowRankStruct(ctypes.Structure):
    """What an adapter adds to a layer; without matrices nothing."""

    _fields_ = [
        ("down", c_void_p),
        ("up", c_void_p),
        ("halves", c_void_p),
        ("rank", c_int64),
        ("between", c_int64),
    ]


class LayerAdapterStruct(ctypes.Structure):
    """What an adapter adds to one block."""

    _fields_ = [(name, LowRankStruct) for name in ("qkv", "out", "up", "down")]


class EpilogueStruct(ctypes.Structure):
    """What becomes of a linear layer's result."""

    _fields_ = [("form", c_int32), ("activation", c_int32)]


class StackStruct(ctypes.Structure):
    """All blocks of a decoder or an encoder, and what stands around them."""

    _fields_ = [
        ("layers", POINTER(LayerStruct)),
        ("num_layers", c_int64),
        ("hidden_size", c_int64),
        ("heads", HeadsStruct),
        ("norm_width", c_int64),
        ("eps", c_float),
        ("scale", c_float),
        ("softcap", c_float),
        ("embedding_norm", NormStruct),
        ("final_norm", NormStruct),
        ("head", LinearStruct),
        ("activation", EpilogueStruct),
        ("is_parallel", c_int32),
        ("has_pair_cache", c_int32),
        ("has_fast_pairs", c_int32),
    ]


class SequencesStruct(ctypes.Structure):
    """Whose rows a step has, which keys they see, and where the cache blocks of those are."""

    _fields_ = [
        ("count", c_int64),
        ("first_rows", c_void_p),
        ("starts", c_void_p),
        ("lengths", c_void_p),
        ("blocks", c_void_p),
        ("max_blocks", c_int64),
    ]


class BatchStruct(ctypes.Structure):
    """One step: indices and buffers."""

    _fields_ = [
        ("rows", c_int64),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("cross_slots", c_void_p),
        ("sequences", SequencesStruct),
        ("cross", SequencesStruct),
        ("num_outputs", c_int64),
        ("outputs", c_void_p),
        ("adapters", c_void_p),
        ("max_between", c_int64),
        ("x", c_void_p),
        ("normed", c_void_p),
        ("qkv", c_void_p),
        ("attended", c_void_p),
        ("inner", c_void_p),
        ("between", c_void_p),
        ("logits", c_void_p),
        ("workspace", c_void_p),
    ]


_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "sw_has_bfloat16": (c_int32, []),
    "sw_has_fast_pairs": (c_int32, []),
    "sw_pair_key_dim": (c_int64, [c_int64]),
    "sw_packed_bytes": (c_int64, [c_int32, c_int64, c_int64]),
    "sw_pack": (
        None,
        [c_int32, c_void_p, c_int32, c_int64, c_int64, c_void_p, c_void_p, c_void_p],
    ),
    "sw_workspace_bytes": (c_int64, [c_int64, c_int64]),
    "sw_linear": (
        None,
        [POINTER(LinearStruct), c_void_p, c_int64, c_void_p, c_int32, c_int32, c_void_p],
    ),
    "sw_unpack_rows": (None, [POINTER(LinearStruct), c_void_p, c_int64, c_void_p]),
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
