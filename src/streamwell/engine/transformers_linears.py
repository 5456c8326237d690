"""The linear layers of Transformers' code, laid out as those of our decoders are.

Its plain layers leave weights in the order of the file, which a CPU reads slowly. Packed, a token
takes little more than half of the time; rounded, weights take less memory as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from streamwell.engine.linear import Linear

#: What code does that asks a layer for its weights, and finds none.
MISSES_WEIGHTS = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Packed:
    """What became of a model's weights."""

    #: Inputs of the layers that were packed.
    widths: frozenset[int]
    #: Numbers in these layers, and in matrices, or several in one, that are neither such layers nor
    #: embeddings, as experts are.
    num_packed: int
    num_other: int


def pack_linears(
    model: nn.Module,
    run: Callable[[], torch.Tensor],
    make: Callable[[nn.Linear], Linear],
    *,
    copies_tied: bool,
) -> Packed:
    """Have layers computed by what `make` makes of them, and let go of their weights, one by one.

    Those stay as they are that `run`, a call of the model, does not call, and all of them if its
    code wants the weights themselves.

    Args:
        model: Transformers' model.
        run: computes some tokens.
        make: what computes a layer's output in its place; it may not keep the layer's weights.
        copies_tied: whether an output layer is packed whose weights are also the embeddings: those
            stay.
    """
    embeddings = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Embedding)}
    packed = []
    for layer in _called(model, run):
        is_tied = layer.weight.data_ptr() in embeddings
        if not is_tied or copies_tied:
            layer.forward = make(layer)  # type: ignore[method-assign, assignment]
            packed.append((layer.in_features, layer.weight.numel()))
            _forget_weight(layer)
    linears = (module.weight.data_ptr() for module in model.modules() if type(module) is nn.Linear)
    known = embeddings.union(linears)
    others = (p for p in model.parameters() if p.dim() in (2, 3) and p.data_ptr() not in known)
    num_other = sum(parameter.numel() for parameter in others)
    if packed:  # else nothing of the files, which they are views of, is let go
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    return Packed(
        widths=frozenset(width for width, _ in packed),
        num_packed=sum(count for _, count in packed),
        num_other=num_other,
    )


def _called(model: nn.Module, run: Callable[[], torch.Tensor]) -> list[nn.Linear]:
    """The layers that are called in a run, in order; none if it needs weights in another way."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    called: dict[nn.Linear, None] = {}
    with _without_weights(layers, called):
        try:
            run()
        except MISSES_WEIGHTS:
            return []
    return list(called)


@contextlib.contextmanager
def _without_weights(layers: list[nn.Linear], called: dict[nn.Linear, None]) -> Iterator[None]:
    """Layers compute as they do, and have no weights that could be read in another way."""
    weights = [layer.weight for layer in layers]
    try:
        for layer, weight in zip(layers, weights, strict=True):

            def compute(x: torch.Tensor, layer: nn.Linear, weight: torch.Tensor) -> torch.Tensor:
                called[layer] = None
                return functional.linear(x, weight, layer.bias)

            layer.forward = partial(compute, layer=layer, weight=weight)  # type: ignore[method-assign]
            _forget_weight(layer)
        yield
    finally:
        for layer, weight in zip(layers, weights, strict=True):
            del layer.forward
            layer.weight = weight


def _forget_weight(layer: nn.Linear) -> None:
    """Leave nothing to compute with: on `meta`, PyTorch would do so, and make up numbers."""
    layer.weight = nn.Parameter(layer.weight.detach().new_empty(0), requires_grad=False)


def in_any_shape(linear: Linear, out_features: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A layer over `[num_tokens, in_features]` float32, for `[..., in_features]` of any dtype."""

    def compute(x: torch.Tensor) -> torch.Tensor:
        y = linear(x.reshape(-1, x.shape[-1]).float())
        return y.to(x.dtype).view(*x.shape[:-1], out_features)

    return compute


def told(packed: Packed, quantization: str) -> tuple[str, ...]:
    """What rounding did not reach, for the person who started the server."""
    total = packed.num_packed + packed.num_other
    if 20 * packed.num_other <= total:
        return ()
    share = round(100 * packed.num_other / total)
    return (
        f"--quantization {quantization} leaves {share} % of the weights as they are: this model's "
        "code has them in other than linear layers",
    )
