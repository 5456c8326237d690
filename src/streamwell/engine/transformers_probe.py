"""What a model of Transformers' would cache, and whether it computes what we can give it.

A few tokens are run through it, with a stand-in for attention; what would be wrong from the second
token on is refused here.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.attention import LayerShape, sequence_attention

_NOT_YET = "this architecture cannot be served yet"
#: What a layer caches that is not attention.
_NOTHING = LayerShape(0, 0, 0)
#: Kinds of layers without a window; one that is attention and keeps a state is "hybrid".
_SEE_ALL = ("full_attention", "attention", "hybrid")


@torch.inference_mode()
def probe(
    model: Any,  # noqa: ANN401 - Transformers is not typed
    layers_with_state: frozenset[int],
) -> tuple[list[LayerShape], int]:
    """Run two tokens through the model: what every layer would cache, and how many logits it has.

    Raises:
        LoadError: the model does not route its attention through `AttentionInterface`, or its
            answers hang on something else that we do not have.
    """
    last = model.get_input_embeddings().num_embeddings - 1
    for token_id in (0, last // 2, last):  # one embedding may be damaged, or that of padding
        ids, seen = torch.tensor([[token_id] * 2], device=model.device), ShapeProbe()
        logits = logits_of(model, ids, torch.arange(2), seen)
        if logits.amax().isfinite():
            break
    else:
        raise LoadError("the model's logits are not finite: its weights are damaged")
    config = model.config.get_text_config()
    if not getattr(config, "is_causal", True):  # the mask says it, which is not asked for
        raise LoadError(f"{_NOT_YET}: its tokens look at those after them")
    layers = range(config.num_hidden_layers)
    _check_windows(config, seen)
    if not layers_with_state:  # else it is tried out with its states
        if seen.shapes.keys() != set(layers):
            raise LoadError(f"{_NOT_YET}: not all layers are attention")
        _check_positions(model, ids, logits)
    return [seen.shapes.get(layer, _NOTHING) for layer in layers], logits.shape[-1]


def logits_of(
    model: Any,  # noqa: ANN401 - Transformers is not typed
    token_ids: torch.Tensor,
    positions: torch.Tensor | None = None,
    seen: ShapeProbe | None = None,
) -> torch.Tensor:
    """Logits `[num_tokens, vocab_size]` of `[1, num_tokens]` ids of one text, without any cache.

    Raises:
        LoadError: its attention is not ours to compute.
    """
    options = {} if positions is None else {"position_ids": positions[None].to(model.device)}
    try:
        out = model(input_ids=token_ids, use_cache=False, attention=seen or ShapeProbe(), **options)
    except (TypeError, NotImplementedError) as error:
        raise LoadError(f"{_NOT_YET}: {error}") from error
    logits: torch.Tensor = out.logits[0]
    return logits


def _check_positions(model: Any, token_ids: torch.Tensor, logits: torch.Tensor) -> None:  # noqa: ANN401
    """Positions have to count from 0, and to be those that we give, since a step has many texts.

    Of two tokens that are the same, attention alone makes the same: what differs is positions.
    """
    if not _is_near(logits_of(model, token_ids), logits):
        raise LoadError(f"{_NOT_YET}: its positions do not count from 0")
    moved = logits_of(model, token_ids, torch.tensor([0, 2]))
    if torch.equal(moved, logits) and not _is_near(logits[0], logits[1]):
        raise LoadError(f"{_NOT_YET}: it counts positions by itself")


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    margin = 16 * torch.finfo(one.dtype).eps * float(other.abs().amax())
    return float((one - other).abs().amax()) <= margin


def _check_windows(config: Any, seen: ShapeProbe) -> None:  # noqa: ANN401 - not typed
    """Some modelling code leaves what a layer sees to masks, which we do not have."""
    window = getattr(config, "sliding_window", None)
    expected = dict.fromkeys(_SEE_ALL) | {"sliding_attention": window}
    kinds = getattr(config, "layer_types", None)
    for layer, kind in enumerate(kinds or ()):
        if layer not in seen.windows:
            continue  # it has a state
        if kind not in expected or seen.windows[layer] != expected[kind]:
            raise LoadError(f"{_NOT_YET}: layers of {kind}")
    num_positions = getattr(config, "max_position_embeddings", math.inf)
    is_narrow = window is not None and window < num_positions
    if not kinds and is_narrow and window not in seen.windows.values():
        raise LoadError(f"{_NOT_YET}: its sliding window is in its masks alone")


class ShapeProbe:
    """Stands in for `PagedAttention` once, to learn what each layer would cache."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if layer in self.shapes:
            raise NotImplementedError("a layer that attends twice")
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[2], value.shape[2])
        self.windows[layer] = window
        return sequence_attention(query, key, value, None, scale, softcap, sinks)
