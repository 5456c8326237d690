"""What a `config.json` says of a model, held against the weights that are there.

Transformers builds what the config says before it looks at the weights: a layer more costs nothing
to write down, and a million of them cost hours and all memory to build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamwell.core.errors import LoadError
from streamwell.models.safetensors_header import TensorInfo

#: Each of these has a tensor of its own.
_LAYERS = frozenset(
    {
        "num_hidden_layers",
        "num_layers",
        "n_layer",
        "n_layers",
        "encoder_layers",
        "decoder_layers",
        "num_encoder_layers",
        "num_decoder_layers",
    }
)
#: Each of these is a step along one dimension of some tensor, if not a tensor of its own.
_ENTRIES = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "d_model",
        "n_embd",
        "num_attention_heads",
        "num_key_value_heads",
        "n_head",
        "num_heads",
        "num_experts",
        "num_local_experts",
        "n_routed_experts",
    }
)
#: What families call the size of an embedding.
_WIDTHS = ("hidden_size", "n_embd", "d_model")
_FLOATS = frozenset({"F16", "BF16", "F32", "F64"})


def check_claims(
    config: Mapping[str, Any], tensors: Mapping[str, TensorInfo], *, are_plain: bool = True
) -> None:
    """Compare the counts in a config, its inner ones too, with the shapes of its weights.

    Those of GGUF files are not plain: their types say themselves what their numbers stand for.

    Raises:
        LoadError: names the field that claims more than there is, or a weight that is no number.
    """
    largest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    for where, name, value in walk(config):
        limit = len(tensors) if name in _LAYERS else largest if name in _ENTRIES else None
        if limit is not None and isinstance(value, int | float) and not value <= limit:
            raise LoadError(
                f"config.json: {where} is {value}, but the weights are {len(tensors)} tensors, "
                f"none longer than {largest}"
            )
    if are_plain and not any(name == "quantization_config" for _, name, _ in walk(config)):
        _check_types(tensors)


def check_embeddings(config: Mapping[str, Any], shape: Sequence[int]) -> None:
    """Compare what a config says of the embeddings with their shape, `[vocab_size, width]`.

    Raises:
        LoadError: names the field that says otherwise.
    """
    vocab_size, width = shape
    for name, size in {"vocab_size": vocab_size, **dict.fromkeys(_WIDTHS, width)}.items():
        if (said := config.get(name)) not in (None, size):
            raise LoadError(f"config.json: {name} is {said}, but the embeddings have {size}")


def _check_types(tensors: Mapping[str, TensorInfo]) -> None:
    """Numbers that stand for others, by a rule that is not given, are not taken for weights."""
    for name, tensor in tensors.items():
        if name.endswith(".weight") and tensor.dtype not in _FLOATS:
            raise LoadError(
                f"the weight {name!r} is {tensor.dtype}, but config.json has no quantization_config"
            )


def walk(content: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Dotted path, name and value of each field, at any depth."""
    todo: list[tuple[str, Any]] = [("", content)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, dict):
            inner = [(f"{path}.{name}" if path else name, name, v) for name, v in value.items()]
        elif isinstance(value, list):
            inner = [(f"{path}.{i}", "", v) for i, v in enumerate(value)]
        else:
            continue
        yield from inner
        todo += [(where, item) for where, _, item in inner if isinstance(item, dict | list)]
