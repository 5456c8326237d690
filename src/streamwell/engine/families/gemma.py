"""Gemma: scaled embeddings, one added to the weights of norms, a gate through GELU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamwell.engine.families.family import (
    FULL,
    SLIDING,
    Family,
    decoder_spec,
    kinds_of,
    windows_of,
)
from streamwell.engine.families.fields import Fields, require
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.rope import DEFAULT_THETA, parse_rope
from streamwell.engine.families.spec import DecoderSpec, Rope

_DEFAULTS = {"tie_word_embeddings": True, "use_bidirectional_attention": None}

# --- Gemma ---


def _gemma(fields: Fields) -> DecoderSpec:
    # the first releases said "gelu" and meant its approximation
    is_legacy = fields.get("hidden_act") == "gelu"
    spec = decoder_spec(fields, activation="gelu_tanh" if is_legacy else None)
    return _gemma_like(spec, fields)


def _gemma_like(spec: DecoderSpec, fields: Fields) -> DecoderSpec:
    require(not fields.get("use_bidirectional_attention"))
    multiplier = fields.size("hidden_size") ** 0.5
    return replace(spec, norm="rms_plus_one", embedding_multiplier=multiplier)


GEMMA = Family(read=_gemma, defaults=_DEFAULTS)

# --- Gemma 2: norms at inputs and outputs, soft caps, every other layer slides ---


def _gemma2(fields: Fields) -> DecoderSpec:
    spec = _with_kinds(fields, _kinds(fields, period=2))
    return replace(spec, attention_softcap=fields.optional_number("attn_logit_softcapping"))


def _kinds(fields: Fields, period: int) -> list[str]:
    """Every so many layers one sees everything, unless the config says otherwise."""
    numbers = range(1, fields.num_layers + 1)
    return kinds_of(fields, [SLIDING if number % period else FULL for number in numbers])


def _with_kinds(
    fields: Fields, kinds: Sequence[str], ropes: Sequence[Rope] | None = None
) -> DecoderSpec:
    """What Gemma 2 and 3 have in common."""
    spec = decoder_spec(fields, windows=windows_of(kinds, fields), ropes=ropes)
    return replace(
        _gemma_like(spec, fields),
        norm_placement="around",
        attention_scale=fields.size("query_pre_attn_scalar") ** -0.5,
        logits_softcap=fields.optional_number("final_logit_softcapping"),
    )


_KINDS_DEFAULTS = _DEFAULTS | {
    "hidden_activation": "gelu_pytorch_tanh",
    "layer_types": None,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_NAMES = {"hidden_act": "hidden_activation"}
_OUTPUT_NORMS = Layout(
    names=(
        ("post_attention_layernorm", "post_self_attn_layernorm"),
        ("pre_feedforward_layernorm", "post_attention_layernorm"),
        ("post_feedforward_layernorm", "post_mlp_layernorm"),
    )
)
GEMMA2 = Family(
    read=_gemma2,
    defaults=_KINDS_DEFAULTS | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    names=_NAMES,
    layout=_OUTPUT_NORMS,
)

# --- Gemma 3: norms of queries and keys instead of caps, two kinds of rotary embeddings ---


def _gemma3(fields: Fields) -> DecoderSpec:
    kinds, ropes = _kinds(fields, fields.size("sliding_window_pattern")), _gemma3_ropes(fields)
    spec = _with_kinds(fields, kinds, [ropes[kind] for kind in kinds])
    return replace(spec, qk_norm="head")


def _gemma3_ropes(fields: Fields) -> dict[str, Rope]:
    """Rotary embeddings by kind of layer; of old, a scaling was that of global layers."""
    nested = fields.given("rope_parameters") or {}
    scaling = fields.given("rope_scaling") or {}
    require(isinstance(nested, dict) and isinstance(scaling, dict))
    thetas = {
        FULL: fields.given("rope_theta") or 1e6,
        SLIDING: fields.given("rope_local_base_freq") or DEFAULT_THETA,
    }
    require(nested.keys() <= thetas.keys())
    given = {kind: {"rope_theta": t, **(nested.get(kind) or {})} for kind, t in thetas.items()}
    require(not scaling or "rope_type" in scaling)  # by its old name Transformers ignores it
    given[FULL] |= scaling
    require(all(rope.get("partial_rotary_factor", 1) == 1 for rope in given.values()))
    head_dim = fields.size("head_dim")
    return {kind: parse_rope(rope, head_dim, fields) for kind, rope in given.items()}


GEMMA3 = Family(
    read=_gemma3,
    defaults=_KINDS_DEFAULTS | {"final_logit_softcapping": None, "sliding_window_pattern": 6},
    names=_NAMES,
    layout=_OUTPUT_NORMS,
)
