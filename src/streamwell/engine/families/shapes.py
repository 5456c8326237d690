"""Compares the shapes of a model's weights with its spec; the native helper trusts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from streamwell.engine.families.spec import DecoderSpec

Shapes = Mapping[str, tuple[int, ...]]

_EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.")


def check_shapes(spec: DecoderSpec, shapes: Shapes) -> None:
    """Compare the shapes of weights that have Llama's names with a spec.

    Raises:
        KeyError: a weight is missing.
        ValueError: one is of another shape.
    """
    expected = _expected(spec, shapes)
    matches = (_EXPERT.match(name) for name in shapes)
    count = spec.experts.count if spec.experts else 0
    if extra := next((match for match in matches if match and int(match[2]) >= count), None):
        raise ValueError(f"layer {extra[1]} has more experts than {count}")
    for name, shape in expected.items():
        weight, bias = shapes[f"{name}.weight"], shapes.get(f"{name}.bias")
        if bias is None:
            bias = shapes[f"{name}.bias"] if _needs_bias(spec, name) else shape[:1]
        if not all(shape) or (weight, bias) != (shape, shape[:1]):
            raise ValueError(f"the shape of {name} is not {shape}, or it is empty")
    for group in _fused(expected):
        if len({f"{name}.bias" in shapes for name in group}) > 1:
            raise ValueError(f"some of {', '.join(group)} have biases, and some do not")


def places(spec: DecoderSpec, shapes: Shapes) -> frozenset[str]:
    """Names of all weights that a spec has a place for; their shapes are sound."""
    # the output layer may be saved though it is tied
    layers = (*_expected(spec, shapes), "model.embed_tokens", "lm_head")
    return frozenset(f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias"))


def _needs_bias(spec: DecoderSpec, name: str) -> bool:
    """Layer norms do; linear layers may be without, but for some mixtures'."""
    if spec.norm == "layer" and name.endswith("norm"):
        return True
    is_linear = ".mlp." in name or "_proj" in name
    return spec.experts is not None and spec.experts.has_biases and is_linear


def _expected(spec: DecoderSpec, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights; what the spec leaves open is what the weights say."""
    vocab_size, hidden = shapes["model.embed_tokens.weight"]
    expected: dict[str, tuple[int, ...]] = {"model.norm": (hidden,)}
    if not spec.tie_word_embeddings:
        expected["lm_head"] = (vocab_size, hidden)
    if spec.has_position_embeddings:
        expected["model.embed_positions"] = (spec.max_position_embeddings, hidden)
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}."
        block = _attention_shapes(spec, hidden) | _mlp_shapes(spec, layer, hidden, shapes)
        expected |= {prefix + name: shape for name, shape in block.items()}
    return expected


def _fused(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Names of linear layers that become one."""
    for name in names:
        if name.endswith(".q_proj"):
            yield tuple(name.replace("q_proj", f"{kind}_proj") for kind in "qkv")
        elif name.endswith(".gate_proj"):
            yield name, name.replace("gate_proj", "up_proj")


def _attention_shapes(spec: DecoderSpec, hidden: int) -> dict[str, tuple[int, ...]]:
    """Attention's weights, and the block's norms."""
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
    }
    if spec.has_sinks:
        shapes["self_attn.sinks"] = (spec.num_heads,)
    if spec.qk_norm is not None:
        is_wide = spec.qk_norm == "projection"
        shapes["self_attn.q_norm"] = (queries if is_wide else spec.head_dim,)
        shapes["self_attn.k_norm"] = (keys if is_wide else spec.head_dim,)
    if spec.norm_placement != "after":
        shapes["input_layernorm"] = (hidden,)
        if not spec.shares_norm:
            shapes["post_attention_layernorm"] = (hidden,)
    if spec.norm_placement != "before":
        shapes |= {"post_self_attn_layernorm": (hidden,), "post_mlp_layernorm": (hidden,)}
    return shapes


def _mlp_shapes(
    spec: DecoderSpec, layer: int, hidden: int, shapes: Shapes
) -> dict[str, tuple[int, ...]]:
    """The feed-forward layer, or each expert's; their widths are what their weights say."""
    experts = spec.experts_of(layer)
    if experts is None:
        return _dense_shapes(spec, layer, "mlp", hidden, shapes)
    expected: dict[str, tuple[int, ...]] = {"mlp.gate": (experts.count, hidden)}
    for expert in range(experts.count):
        expected |= _dense_shapes(spec, layer, f"mlp.experts.{expert}", hidden, shapes)
    if experts.has_shared:
        expected |= _dense_shapes(spec, layer, "mlp.shared_expert", hidden, shapes)
        expected["mlp.shared_expert_gate"] = (1, hidden)
    return expected


def _dense_shapes(
    spec: DecoderSpec, layer: int, name: str, hidden: int, shapes: Shapes
) -> dict[str, tuple[int, ...]]:
    first = "gate_proj" if spec.is_gated else "up_proj"
    inner = shapes[f"model.layers.{layer}.{name}.{first}.weight"][0]
    expected: dict[str, tuple[int, ...]] = {
        f"{name}.up_proj": (inner, hidden),
        f"{name}.down_proj": (hidden, inner),
    }
    if spec.is_gated:
        expected[f"{name}.gate_proj"] = (inner, hidden)
    return expected
