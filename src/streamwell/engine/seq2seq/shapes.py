"""Compares the shapes of an encoder-decoder's weights with its spec; the native helper trusts them.

PyTorch finds out by itself, when the model is tried out.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamwell.engine.seq2seq.embeddings import Weights, embedding_weight, head_weight
from streamwell.engine.seq2seq.families import Seq2SeqSpec, Stack

#: By names of weights, without `.weight`.
Shapes = Mapping[str, tuple[int, ...]]


def check_shapes(spec: Seq2SeqSpec, weights: Weights) -> None:
    """Compare the weights, which bear our names, with a spec.

    Raises:
        KeyError: one is missing.
        ValueError: one is of another shape.
    """
    vocab_size, hidden = embedding_weight(weights, "decoder").shape
    expected: dict[str, tuple[int, ...]] = {}
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        expected |= _tower_shapes(spec, stack, weights, name, hidden)
    for name, shape in expected.items():
        # linear layers may be without biases, layer norms may not
        needs_bias = not spec.is_rms_norm and name.endswith("norm")
        bias = weights.get(f"{name}.bias")
        found = (weights[f"{name}.weight"].shape, shape[:1] if bias is None else bias.shape)
        if found != (shape, shape[:1]) or not all(shape):
            raise ValueError(f"the shape of {name} is not {shape}, or it is empty")
        if needs_bias and bias is None:
            raise KeyError(f"{name}.bias")
    if head_weight(weights).shape != (vocab_size, hidden):
        raise ValueError(f"the shape of the head is not {(vocab_size, hidden)}")
    if weights.get("lm_head.bias", head_weight(weights)[:, 0]).numel() != vocab_size:
        raise ValueError(f"the head has not {vocab_size} biases")


def _tower_shapes(
    spec: Seq2SeqSpec, stack: Stack, weights: Weights, name: str, hidden: int
) -> Shapes:
    """Of all linear layers and norms; how wide the inner layer is, its weights say."""
    _check_tables(spec, stack, weights, name, hidden)
    norms = ("embedding_norm",) * spec.has_embedding_norm + ("norm",) * spec.has_final_norm
    expected: dict[str, tuple[int, ...]] = {f"{name}.{norm}": (hidden,) for norm in norms}
    for layer in range(stack.num_layers):
        prefix = f"{name}.{layer}"
        inner = weights[f"{prefix}.up.weight"].shape[0]
        expected |= {f"{prefix}.up": (inner, hidden), f"{prefix}.down": (hidden, inner)}
        expected[f"{prefix}.inner_norm"] = (hidden,)
        if spec.is_gated:
            expected[f"{prefix}.gate"] = (inner, hidden)
        for part in ("self", "cross")[: 1 + (name == "decoder")]:
            expected |= _attention_shapes(f"{prefix}.{part}", stack, hidden)
    return expected


def _attention_shapes(prefix: str, stack: Stack, hidden: int) -> Shapes:
    width = stack.num_heads * stack.head_dim
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}.{part}": (width, hidden) for part in "qkv"}
    return shapes | {f"{prefix}.o": (hidden, width), f"{prefix}_norm": (hidden,)}


def _check_tables(
    spec: Seq2SeqSpec, stack: Stack, weights: Weights, name: str, hidden: int
) -> None:
    """What is looked up: embeddings, positions, and biases by distance."""
    tables = {"embeddings": embedding_weight(weights, name)}
    if f"{name}.positions" in weights:
        tables["positions"] = weights[f"{name}.positions"]
    for what, table in tables.items():
        if table.dim() != 2 or table.shape[1] != hidden:
            raise ValueError(f"the {what} of the {name} are not {hidden} wide")
    if spec.relative_bias is not None:
        shape = (spec.relative_bias.num_buckets, stack.num_heads)
        if weights[f"{name}.0.bias"].shape != shape:
            raise ValueError(f"the shape of the {name}'s buckets of distances is not {shape}")
