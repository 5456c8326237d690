"""What contenders are set to, beside their defaults."""

from __future__ import annotations

from typing import Any

#: Precisions that are not a dtype: our engine quantizes the weights when it loads them.
QUANTIZED = ("int8", "int4")
PRECISIONS = ("float32", "bfloat16", *QUANTIZED)
#: Pages of 256 tokens for Transformers' cache; its default is 60 % of the machine's memory.
PEER_NUM_BLOCKS = 128


def engine_options(precision: str) -> dict[str, Any]:
    """Our engine's options for a precision: a dtype, or one of `QUANTIZED`."""
    if precision in QUANTIZED:
        return {"dtype": "auto", "quantization": precision}
    return {"dtype": precision}
