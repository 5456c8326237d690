"""Families with norms at the outputs of their layers, and none at the inputs."""

from __future__ import annotations

from dataclasses import replace

from streamwell.engine.families.family import (
    FULL,
    SLIDING,
    Family,
    decoder_spec,
    every_so_many,
    head_dim_of,
    kinds_of,
    ropes_by_kind,
    windows_of,
)
from streamwell.engine.families.fields import Fields
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.rope import read_rope
from streamwell.engine.families.spec import DecoderSpec

_LAYOUT = Layout(
    names=(
        ("post_attention_layernorm", "post_self_attn_layernorm"),
        ("post_feedforward_layernorm", "post_mlp_layernorm"),
    )
)

# --- OLMo 2: norms over whole queries and keys ---


def _olmo2(fields: Fields) -> DecoderSpec:
    return replace(decoder_spec(fields), norm_placement="after", qk_norm="projection")


OLMO2 = Family(
    read=_olmo2,
    defaults={"num_key_value_heads": None, "head_dim": None, "tie_word_embeddings": False},
    layout=_LAYOUT,
)

# --- OLMo 3: three of four layers slide, and only the fourth is stretched by YaRN ---

_OLMO3_THETA = 500_000.0


def _olmo3(fields: Fields) -> DecoderSpec:
    kinds = kinds_of(fields, every_so_many(fields, 4))
    # Transformers takes what was written before there were two for global layers alone
    ropes = ropes_by_kind(
        fields, {FULL: fields.given("rope_theta") or _OLMO3_THETA, SLIDING: _OLMO3_THETA}
    )
    spec = decoder_spec(
        fields, windows=windows_of(kinds, fields), ropes=[ropes[kind] for kind in kinds]
    )
    return replace(spec, norm_placement="after", qk_norm="projection")


OLMO3 = Family(
    read=_olmo3,
    defaults={**OLMO2.defaults, "layer_types": None, "sliding_window": 4096},
    layout=_LAYOUT,
)

# --- EXAONE 4: norms of queries and keys; where some layers slide, the others do not turn ---


def _exaone4(fields: Fields) -> DecoderSpec:
    window = fields.optional_size("sliding_window")
    period = fields.get("sliding_window_pattern") if window else None
    derived = every_so_many(fields, period) if type(period) is int and period else []
    kinds = kinds_of(fields, derived)
    rope = read_rope(fields, head_dim_of(fields))
    spec = decoder_spec(
        fields,
        ropes=[rope if window is None or kind == SLIDING else None for kind in kinds],
        windows=windows_of(kinds, fields),
    )
    return replace(spec, norm_placement="after", qk_norm="head")


EXAONE4 = Family(
    read=_exaone4,
    defaults={
        "head_dim": None,
        "layer_types": None,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "tie_word_embeddings": False,
    },
    layout=_LAYOUT,
)
