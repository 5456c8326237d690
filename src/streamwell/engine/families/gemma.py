"""Gemma: scaled embeddings, one added to the weights of norms, a gate through GELU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamwell.engine.families.family import (
    FULL,
    SLIDING,
    Family,
    decoder_spec,
    every_so_many,
    kinds_of,
    ropes_by_kind,
    windows_of,
)
from streamwell.engine.families.fields import Fields, require
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.rope import DEFAULT_THETA
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
    spec = _with_kinds(fields, kinds_of(fields, every_so_many(fields, 2)))
    return replace(spec, attention_softcap=fields.optional_number("attn_logit_softcapping"))


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
    kinds = kinds_of(fields, every_so_many(fields, fields.size("sliding_window_pattern")))
    thetas = {
        FULL: fields.given("rope_theta") or 1e6,
        SLIDING: fields.given("rope_local_base_freq") or DEFAULT_THETA,
    }
    ropes = ropes_by_kind(fields, thetas)
    spec = _with_kinds(fields, kinds, [ropes[kind] for kind in kinds])
    return replace(spec, qk_norm="head")


GEMMA3 = Family(
    read=_gemma3,
    defaults=_KINDS_DEFAULTS
    | {
        "final_logit_softcapping": None,
        "sliding_window_pattern": 6,
        # what the configs of those that see pictures leave out
        "head_dim": 256,
        "hidden_size": 2304,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        "num_hidden_layers": 26,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
    },
    names=_NAMES,
    layout=_OUTPUT_NORMS,
)
