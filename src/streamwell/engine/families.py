"""Which model families the lean decoder knows, and how their configs and weights map onto it.

A family is a few lines here and a golden test against Transformers. Whatever is not understood
completely is not guessed: `describe` says no, and the model runs on Transformers' own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Families whose modules and weights are named and wired as Llama's are,
#: and what their configs must say, since Transformers has other defaults for each of them.
_LLAMA_LIKE = {
    "llama": frozenset[str](),
    "mistral": frozenset({"num_key_value_heads", "sliding_window"}),
    "qwen2": frozenset({"num_key_value_heads", "use_sliding_window", "sliding_window"}),
    "qwen3": frozenset({"num_key_value_heads", "use_sliding_window", "sliding_window", "head_dim"}),
}
_NEEDED = frozenset(
    {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "rms_norm_eps",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """A decoder of pre-norm blocks: RMS norm, rotary attention, gated SiLU.

    Biases of the projections and norms of queries and keys are there if their weights are.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    #: Sliding window of each layer in tokens; `None` sees everything.
    windows: tuple[int | None, ...]


def describe(config: Mapping[str, Any]) -> DecoderSpec | None:
    """The spec of a model from its `config.json`, or `None` if it is not known completely."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    is_known = (
        (model_type := config.get("model_type")) in _LLAMA_LIKE
        and config.keys() >= _NEEDED | _LLAMA_LIKE[model_type]
        and "quantization_config" not in config
        and config.get("hidden_act") == "silu"
        and rope.get("rope_type", rope.get("type", "default")) == "default"
        and rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) == 1.0
        and config.get("pretraining_tp", 1) == 1
    )
    if not is_known:
        return None
    num_heads = config["num_attention_heads"]
    return DecoderSpec(
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
        norm_eps=config["rms_norm_eps"],
        rope_theta=rope.get("rope_theta") or config.get("rope_theta") or 10000.0,
        max_position_embeddings=config["max_position_embeddings"],
        tie_word_embeddings=config.get("tie_word_embeddings", False),
        windows=_windows(config),
    )


def _windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    num_layers, window = config["num_hidden_layers"], config.get("sliding_window")
    if config.get("layer_types"):
        is_sliding = [kind == "sliding_attention" for kind in config["layer_types"]]
    elif "use_sliding_window" in config:  # Qwen: only the upper layers slide
        first = config.get("max_window_layers", num_layers)
        is_sliding = [config["use_sliding_window"] and i >= first for i in range(num_layers)]
    else:
        is_sliding = [window is not None] * num_layers
    return tuple(window if slides else None for slides in is_sliding)
