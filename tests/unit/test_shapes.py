"""Weights whose shapes do not fit the config never reach the native helper, which trusts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamwell.engine.families import DecoderSpec, Rope, check_shapes

HIDDEN, INNER, VOCABULARY, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 300, 4, 2, 16
SPEC = DecoderSpec(
    num_layers=2,
    num_heads=HEADS,
    num_kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    norm_eps=1e-6,
    max_position_embeddings=128,
    tie_word_embeddings=False,
    windows=(None, None),
    ropes=(Rope(theta=10000.0, dim=HEAD_DIM),) * 2,
)


def sound_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for layer in range(2):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
                "mlp.gate_proj": (INNER, HIDDEN),
                "mlp.up_proj": (INNER, HIDDEN),
                "mlp.down_proj": (HIDDEN, INNER),
                "input_layernorm": (HIDDEN,),
                "post_attention_layernorm": (HIDDEN,),
            }.items()
        }
    return shapes


def test_sound_shapes_pass() -> None:
    """With and without biases, which only some families have."""
    shapes = sound_shapes()
    check_shapes(SPEC, shapes)
    shapes["model.layers.1.self_attn.o_proj.bias"] = (HIDDEN,)
    check_shapes(SPEC, shapes)


@pytest.mark.parametrize(
    ("changes", "shapes"),
    [
        (
            {"qk_norm": "head"},
            {"self_attn.q_norm.weight": (HEAD_DIM,), "self_attn.k_norm.weight": (HEAD_DIM,)},
        ),
        (
            {"qk_norm": "projection"},
            {
                "self_attn.q_norm.weight": (HEADS * HEAD_DIM,),
                "self_attn.k_norm.weight": (KV_HEADS * HEAD_DIM,),
            },
        ),
        (
            {"norm_placement": "around"},
            {
                "post_self_attn_layernorm.weight": (HIDDEN,),
                "post_mlp_layernorm.weight": (HIDDEN,),
            },
        ),
    ],
)
def test_declared_norms_must_be_there(
    changes: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> None:
    """And of the size that the variation has; the same weights are not needed without it."""
    spec = replace(SPEC, **changes)
    norms = {f"model.layers.{i}.{name}": shape for i in range(2) for name, shape in shapes.items()}
    check_shapes(spec, sound_shapes() | norms)
    for name, (size,) in norms.items():
        with pytest.raises(ValueError, match="shape"):
            check_shapes(spec, sound_shapes() | norms | {name: (size + 1,)})
        others = {key: shape for key, shape in norms.items() if key != name}
        with pytest.raises(KeyError):
            check_shapes(spec, sound_shapes() | others)


def test_some_biases_of_what_becomes_one_layer_are_refused() -> None:
    """One for queries but none for keys and values would be one of a wrong size."""
    bias = {"model.layers.1.self_attn.q_proj.bias": (HEADS * HEAD_DIM,)}

    with pytest.raises(ValueError, match="biases"):
        check_shapes(SPEC, sound_shapes() | bias)


@pytest.mark.parametrize("name", sorted(sound_shapes()))
def test_a_wrong_shape_is_refused(name: str) -> None:
    """One row more, in any weight but those that the others are measured by."""
    shapes = sound_shapes()
    rows, *rest = shapes[name]
    shapes[name] = (rows + 1, *rest)

    with pytest.raises(ValueError, match="shape"):
        check_shapes(SPEC, shapes)


@pytest.mark.parametrize("name", sorted(sound_shapes()))
def test_a_missing_weight_is_refused(name: str) -> None:
    """Every weight that any of these families has must be there."""
    shapes = sound_shapes()
    del shapes[name]

    with pytest.raises(KeyError):
        check_shapes(SPEC, shapes)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.0.mlp.up_proj.bias", (INNER - 1,)),
        ("model.layers.1.self_attn.o_proj.bias", (HIDDEN + 1,)),
        ("model.layers.0.self_attn.q_proj.weight", (HEADS * HEAD_DIM * HIDDEN,)),
    ],
)
def test_what_is_optional_must_fit_too(name: str, shape: tuple[int, ...]) -> None:
    """Biases of another size, and a weight of another number of dimensions."""
    with pytest.raises(ValueError, match="shape"):
        check_shapes(SPEC, sound_shapes() | {name: shape})
