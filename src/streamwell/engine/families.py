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
#: Beyond these a config is a mistake, or means harm.
_MAX_SIZE, _MAX_LAYERS = 1 << 31, 10_000
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
        and _has_sound_sizes(config)
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


def _has_sound_sizes(config: Mapping[str, Any]) -> bool:
    """Whether all sizes are positive integers, all numbers usable, and heads can be shared out."""
    optional = ("num_key_value_heads", "head_dim", "sliding_window")
    sizes = [config[name] for name in _NEEDED if name != "rms_norm_eps"]
    sizes += [config[name] for name in optional if config.get(name) is not None]
    num_heads = config["num_attention_heads"]
    return (
        all(isinstance(size, int) and 0 < size < _MAX_SIZE for size in sizes)
        and config["num_hidden_layers"] < _MAX_LAYERS
        and isinstance(config["rms_norm_eps"], float | int)
        and 0 <= config["rms_norm_eps"] < 1
        and num_heads % (config.get("num_key_value_heads") or num_heads) == 0
    )


def check_shapes(spec: DecoderSpec, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the shapes of a model's weights with its spec; the native helper trusts them.

    Raises:
        KeyError: a weight is missing.
        ValueError: one is of another shape.
    """
    vocab_size, hidden = shapes["model.embed_tokens.weight"]
    expected: dict[str, tuple[int, ...]] = {"model.norm": (hidden,)}
    if not spec.tie_word_embeddings:
        expected["lm_head"] = (vocab_size, hidden)
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}."
        inner = shapes[f"{prefix}mlp.gate_proj.weight"][0]
        expected |= {prefix + name: s for name, s in _block_shapes(spec, hidden, inner).items()}
    for name, shape in expected.items():
        if not all(shape):
            raise ValueError(f"{name} is empty")
        # head norms and biases may be missing, everything else must be there
        is_optional = name.endswith(("q_norm", "k_norm"))
        found = shapes.get(f"{name}.weight", shape) if is_optional else shapes[f"{name}.weight"]
        if (found, shapes.get(f"{name}.bias", shape[:1])) != (shape, shape[:1]):
            raise ValueError(f"the shape of {name} is not {shape}")


def _block_shapes(spec: DecoderSpec, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    """The shapes of one block's weights."""
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    return {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "self_attn.q_norm": (spec.head_dim,),
        "self_attn.k_norm": (spec.head_dim,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }


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
