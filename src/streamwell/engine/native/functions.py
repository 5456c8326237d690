"""What the helper computes of functions that Transformers' code calls by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from streamwell.engine.native.delta_rule import DeltaRule
from streamwell.engine.native.short_conv import ShortConv
from streamwell.engine.native.state_scan import StateScan


def functions_of(helper: ctypes.CDLL) -> Mapping[str, Callable[..., Any]]:
    """Functions by their names there. They may raise `NotImplementedError`."""
    conv, rule, scan = ShortConv(helper), DeltaRule(helper), StateScan(helper)
    return {
        "causal_conv1d_fn": conv.whole,
        "causal_conv1d_update": conv.step,
        "torch_chunk_gated_delta_rule": rule,
        "torch_recurrent_gated_delta_rule": rule,
        "mamba2_chunk_scan": scan.whole,
        "mamba2_selective_state_update": scan.step,
    }
