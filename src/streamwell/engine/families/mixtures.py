"""Mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streamwell.engine.families.family import (
    FULL,
    SLIDING,
    Family,
    decoder_spec,
    head_dim_of,
    kinds_of,
    windows_of,
)
from streamwell.engine.families.fields import Fields, require
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.llama import same_window
from streamwell.engine.families.rope import read_rope
from streamwell.engine.families.spec import DecoderSpec, Experts
from streamwell.engine.operations import SWIGLU_ALPHA, SWIGLU_LIMIT


def _experts(
    fields: Fields,
    layers: Iterable[int],
    *,
    sums_to_one: bool,
    has_shared: bool = False,
    has_biases: bool = False,
) -> Experts | None:
    """The experts of some layers; `None` if there are no such layers."""
    count = fields.size("num_local_experts", "num_experts")
    num_per_token = fields.size("num_experts_per_tok")
    require(num_per_token <= count)
    experts = Experts(
        count=count,
        num_per_token=num_per_token,
        sums_to_one=sums_to_one,
        layers=frozenset(layers),
        has_shared=has_shared,
        has_biases=has_biases,
    )
    return experts if experts.layers else None


# --- Mixtral ---


def _mixtral(fields: Fields) -> DecoderSpec:
    ropes = [read_rope(fields, head_dim_of(fields), theta=1e6)] * fields.num_layers
    spec = decoder_spec(fields, windows=same_window(fields), ropes=ropes)
    return replace(spec, experts=_experts(fields, range(spec.num_layers), sums_to_one=True))


MIXTRAL = Family(
    read=_mixtral,
    defaults={"head_dim": None, "sliding_window": None, "tie_word_embeddings": False},
    layout=Layout(
        names=(
            (r"\.block_sparse_moe\.", ".mlp."),
            (r"\.w1\.", ".gate_proj."),
            (r"\.w2\.", ".down_proj."),
            (r"\.w3\.", ".up_proj."),
        )
    ),
)

# --- Qwen2-MoE: an expert for all tokens beside those that are chosen ---


def _qwen2_moe(fields: Fields) -> DecoderSpec:
    slides, end = fields.flag("use_sliding_window"), fields.get("max_window_layers")
    require(type(end) is int)
    derived = [
        SLIDING if slides and i % 2 == 0 and i < end else FULL for i in range(fields.num_layers)
    ]
    kinds = kinds_of(fields, derived)
    require(slides or SLIDING not in kinds)
    spec = decoder_spec(fields, windows=windows_of(kinds, fields))
    return replace(spec, experts=_qwen_experts(fields, has_shared=True))


def _qwen_experts(fields: Fields, *, has_shared: bool) -> Experts | None:
    """Some layers are dense, by their numbers or by a step."""
    step, dense = fields.size("decoder_sparse_step"), fields.get("mlp_only_layers") or []
    require(isinstance(dense, list) and all(type(layer) is int for layer in dense))
    return _experts(
        fields,
        (
            layer
            for layer in range(fields.num_layers)
            if layer not in dense and (layer + 1) % step == 0
        ),
        sums_to_one=fields.flag("norm_topk_prob"),
        has_shared=has_shared,
    )


_QWEN_MOE_DEFAULTS = {
    "decoder_sparse_step": 1,
    "layer_types": None,
    "max_window_layers": 28,
    "mlp_only_layers": None,
    "norm_topk_prob": False,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}
QWEN2_MOE = Family(read=_qwen2_moe, defaults=_QWEN_MOE_DEFAULTS | {"head_dim": None})

# --- Qwen3-MoE: norms of queries and keys; all layers slide, or none ---


def _qwen3_moe(fields: Fields) -> DecoderSpec:
    windows = same_window(fields) if fields.flag("use_sliding_window") else None
    spec = decoder_spec(fields, windows=windows)
    return replace(spec, qk_norm="head", experts=_qwen_experts(fields, has_shared=False))


QWEN3_MOE = Family(read=_qwen3_moe, defaults=_QWEN_MOE_DEFAULTS)

# --- GPT-OSS: sinks, biases everywhere, a gate that is held within bounds; all experts in one ---


def _gpt_oss(fields: Fields) -> DecoderSpec:
    bounds = (fields.number("swiglu_alpha"), fields.number("swiglu_limit"))
    require(fields.get("hidden_act") == "silu" and bounds == (SWIGLU_ALPHA, SWIGLU_LIMIT))
    num_layers = fields.num_layers
    kinds = kinds_of(fields, [FULL if i % 2 else SLIDING for i in range(num_layers)])
    ropes = [read_rope(fields, head_dim_of(fields), theta=150_000.0)] * num_layers
    spec = decoder_spec(
        fields, windows=windows_of(kinds, fields), ropes=ropes, activation="clamped_swiglu"
    )
    experts = _experts(fields, range(num_layers), sums_to_one=True, has_biases=True)
    return replace(spec, has_sinks=True, experts=experts)


GPT_OSS = Family(
    read=_gpt_oss,
    rounded_by=("mxfp4",),
    defaults={
        "hidden_act": "silu",
        "layer_types": None,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "swiglu_alpha": SWIGLU_ALPHA,
        "swiglu_limit": SWIGLU_LIMIT,
        "tie_word_embeddings": False,
    },
    layout=Layout(
        names=(
            (r"\.sinks$", ".sinks.weight"),
            (r"\.mlp\.router\.", ".mlp.gate."),
            (r"\.experts\.(gate_up|down)_proj$", r".experts.\1_proj.weight"),
            (r"\.experts\.(gate_up|down)_proj_bias$", r".experts.\1_proj.bias"),
        )
    ),
)
