"""Families in whose heads each element turns with the one beside it."""

from __future__ import annotations

from dataclasses import replace

from streamwell.engine.families.family import (
    SLIDING,
    Family,
    decoder_spec,
    even_head_dim,
    every_so_many,
    head_dim_of,
    kinds_of,
    windows_of,
)
from streamwell.engine.families.fields import Fields, require
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.rope import read_rope
from streamwell.engine.families.spec import DecoderSpec

# --- GLM-4, in two generations: half of each head turns; the second has norms on both sides ---


def _glm(fields: Fields) -> DecoderSpec:
    rope = read_rope(fields, head_dim_of(fields), part=0.5)
    return decoder_spec(fields, ropes=[rope] * fields.num_layers)


def _glm4(fields: Fields) -> DecoderSpec:
    return replace(_glm(fields), norm_placement="around")


GLM = Family(
    read=_glm,
    defaults={"head_dim": 128, "num_key_value_heads": 2, "tie_word_embeddings": False},
    layout=Layout(turns_neighbours=True),
)
GLM4 = replace(GLM, read=_glm4)

# --- ERNIE 4.5 ---


def _ernie4_5(fields: Fields) -> DecoderSpec:
    rope = read_rope(fields, head_dim_of(fields), theta=500_000.0)
    return decoder_spec(fields, ropes=[rope] * fields.num_layers)


ERNIE4_5 = Family(
    read=_ernie4_5,
    defaults={"head_dim": 128, "num_key_value_heads": 2, "tie_word_embeddings": True},
    layout=Layout(turns_neighbours=True),
)

# --- Command R and R7B: parallel layers that share a norm, without biases ---


def _cohere(fields: Fields) -> DecoderSpec:
    require(not fields.flag("use_qk_norm"))
    rope = read_rope(fields, even_head_dim(fields), theta=500_000.0)
    return _parallel(decoder_spec(fields, ropes=[rope] * fields.num_layers), fields)


def _parallel(spec: DecoderSpec, fields: Fields) -> DecoderSpec:
    factor = fields.number("logit_scale")
    require(factor > 0)
    return replace(
        spec, norm="layer", is_parallel=True, shares_norm=True, logits_divisor=1 / factor
    )


COHERE = Family(
    read=_cohere,
    defaults={
        "head_dim": None,
        "logit_scale": 0.0625,
        "num_key_value_heads": None,
        "tie_word_embeddings": True,
        "use_qk_norm": False,
    },
    names={"rms_norm_eps": "layer_norm_eps"},
    layout=Layout(turns_neighbours=True, has_bare_norms=True),
)

# --- Command R7B and A: three of four layers slide, and the fourth does not turn ---


def _cohere2(fields: Fields) -> DecoderSpec:
    kinds = kinds_of(fields, every_so_many(fields, fields.size("sliding_window_pattern")))
    rope = read_rope(fields, even_head_dim(fields))
    spec = decoder_spec(
        fields,
        ropes=[rope if kind == SLIDING else None for kind in kinds],
        windows=windows_of(kinds, fields),
    )
    return _parallel(spec, fields)


COHERE2 = replace(
    COHERE,
    read=_cohere2,
    defaults={
        "head_dim": None,
        "layer_types": None,
        "logit_scale": 0.0625,
        "num_key_value_heads": None,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "tie_word_embeddings": True,
    },
)
