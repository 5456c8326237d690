"""What contenders are set to, beside their defaults."""

from __future__ import annotations

from typing import Any

#: Precisions that are not a dtype: our engine quantizes the weights when it loads them.
QUANTIZED = ("int8", "int4")
#: Weights as a GGUF file has them rounded.
AS_SAVED = "auto"
PRECISIONS = ("float32", "bfloat16", *QUANTIZED)
#: Pages of 256 tokens for Transformers' cache; its default is 60 % of the machine's memory.
PEER_NUM_BLOCKS = 128


def engine_options(precision: str) -> dict[str, Any]:
    """Our engine's options for a precision: a dtype, one of `QUANTIZED`, or `AS_SAVED`."""
    if precision in (*QUANTIZED, AS_SAVED):
        return {"dtype": "auto", "quantization": precision}
    return {"dtype": precision}
