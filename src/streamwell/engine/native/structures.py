"""The helper's structures, field by field, and the numbers that it knows kinds of things by.

They are those of `schemes.h`, `rows.h`, `attention.h`, `low_rank.h`, `experts.h`, `stack.h`,
`short_conv.h`, `delta_rule.h` and `state_scan.h`.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum


class Kind(IntEnum):
    """How weights are stored."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    INT8 = 3
    INT4 = 4
    #: Multiplied as it is, with activations rounded to bfloat16.
    BFLOAT16_PAIRS = 5
    #: Levels count from a least weight.
    INT4_MINIMUM = 6
    #: With a scale for each group of inputs, where INT8 has one for all.
    INT8_GROUPS = 7
    #: Scales are whole numbers themselves, in super-blocks of 256 inputs.
    INT4_K = 8
    INT5_K = 9
    INT6_K = 10
    #: Small floats with a scale for each group.
    MXFP4 = 11
    #: As BFLOAT16_PAIRS and as BFLOAT16, in three quarters of the bytes.
    CODED_PAIRS = 12
    CODED_BFLOAT16 = 13


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
    CLAMPED_SWIGLU = 5


class LinearStruct(ctypes.Structure):
    """Packed weights `[n, k]` and what goes with them."""

    _fields_ = [
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
        ("n", c_int64),
        ("k", c_int64),
        ("panel_bytes", c_int64),
        ("kind", c_int32),
        ("factor", c_float),
        ("width", c_int64),
        ("rest", c_void_p),
    ]


class CacheStruct(ctypes.Structure):
    """Keys and values of one layer."""

    _fields_ = [("blocks", c_void_p)]


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


class ExpertStruct(ctypes.Structure):
    """A feed-forward layer."""

    _fields_ = [("up", LinearStruct), ("down", LinearStruct)]


class MixtureStruct(ctypes.Structure):
    """A mixture of experts; without a router there is none."""

    _fields_ = [
        ("router", LinearStruct),
        ("experts", POINTER(ExpertStruct)),
        ("count", c_int64),
        ("per_row", c_int64),
        ("sums_to_one", c_int32),
        ("shared", ExpertStruct),
        ("shared_gate", LinearStruct),
    ]


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
        ("sinks", c_void_p),
        ("cache", CacheStruct),
        ("window", c_int64),
        ("cross_query", LinearStruct),
        ("cross_key_value", LinearStruct),
        ("cross_out", LinearStruct),
        ("cross", NormsStruct),
        ("mixture", MixtureStruct),
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


class ShortConvStruct(ctypes.Structure):
    """Tokens of some sequences, and those before them."""

    _fields_ = [
        ("x", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("state", c_void_p),
        ("y", c_void_p),
        ("batch", c_int64),
        ("tokens", c_int64),
        ("channels", c_int64),
        ("taps", c_int64),
        ("activation", c_int32),
    ]


class StateScanStruct(ctypes.Structure):
    """Tokens of some sequences, and their states in one layer of Mamba-2."""

    _fields_ = [
        ("x", c_void_p),
        ("steps", c_void_p),
        ("bias", c_void_p),
        ("rates", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("skips", c_void_p),
        ("state", c_void_p),
        ("out", c_void_p),
        ("batch", c_int64),
        ("tokens", c_int64),
        ("heads", c_int64),
        ("groups", c_int64),
        ("head_dim", c_int64),
        ("state_dim", c_int64),
        ("has_softplus", c_int32),
        ("shortest", c_float),
        ("longest", c_float),
    ]


class DeltaRuleStruct(ctypes.Structure):
    """Tokens of some sequences, and their states in one layer."""

    _fields_ = [
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("decay", c_void_p),
        ("beta", c_void_p),
        ("state", c_void_p),
        ("out", c_void_p),
        ("batch", c_int64),
        ("tokens", c_int64),
        ("key_heads", c_int64),
        ("value_heads", c_int64),
        ("key_dim", c_int64),
        ("value_dim", c_int64),
    ]
