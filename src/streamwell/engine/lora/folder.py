"""Reads the folder of an adapter, as PEFT saves it, into what is added to a model's layers.

The folder is hostile input, as that of a model is: `adapter_config.json` and
`adapter_model.safetensors` are all that is read of it, sizes and shapes are held against the model
before a tensor is touched, and what does not fit completely is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from streamwell.core.errors import LoadError
from streamwell.engine.lora.config import LoraConfig, read_config
from streamwell.engine.lora.layers import Adaptable
from streamwell.models.safetensors_header import TensorInfo, read_header
from streamwell.models.small_files import check_sizes

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_TENSOR = re.compile(r"base_model\.model\.(?P<module>[^\s]{1,300})\.lora_(?P<side>[AB])\.weight")
_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")
_FLOATS = ("F32", "F16", "BF16")
_MAX_HEADER_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Base:
    """The model that adapters are for."""

    layers: Sequence[Adaptable]
    #: From the name of a layer, as the model's folder has it, and `[out_features, rank]`, to our
    #: names and the rows of each.
    canonical_rows: Callable[[str, torch.Tensor], Mapping[str, torch.Tensor]]
    #: What adapters are computed in.
    dtype: torch.dtype

    def max_bytes(self, max_rank: int) -> int:
        """What an adapter of this rank takes in a file at most."""
        sizes = (
            len(each.parts) * each.in_features + sum(each.parts.values()) for each in self.layers
        )
        return 4 * max_rank * sum(sizes) + _MAX_HEADER_BYTES


#: Our name of a layer, with `[rank, in_features]` and `[out_features, rank]`, scaled, in float32.
Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


def read_pairs(path: Path, base: Base, max_rank: int) -> Pairs:
    """What an adapter adds to the layers of a model.

    Raises:
        LoadError: says what cannot be served, in which file.
    """
    if not path.is_dir():
        raise LoadError(f"there is no such folder: {path}")
    check_sizes(path)
    config = read_config(path / _CONFIG, max_rank)
    file = _weights_file(path, base.max_bytes(max_rank))
    try:
        return _read_pairs(file, config, base)
    except _TensorError as error:
        raise LoadError(f"{file}: {error}") from error


class _TensorError(Exception):
    """What is wrong with the tensors, as the rest of a sentence."""


def _weights_file(path: Path, max_bytes: int) -> Path:
    file = path / _WEIGHTS
    if not file.is_file():
        pickled = (path / "adapter_model.bin").exists()
        hint = ": adapter_model.bin is a pickle, which is never read" if pickled else ""
        raise LoadError(f"{path} has no {_WEIGHTS}{hint}")
    if (num_bytes := file.stat().st_size) > max_bytes:
        raise LoadError(f"{file} is too large: {num_bytes} bytes, over {max_bytes} for this model")
    return file


def _read_pairs(file: Path, config: LoraConfig, base: Base) -> Pairs:
    known = {
        name: (num_outputs, layer.in_features)
        for layer in base.layers
        for name, num_outputs in layer.parts.items()
    }
    pairs: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    modules = list(_modules(read_header(file), config))  # all of it is checked before any is read
    with safe_open(file, framework="pt") as tensors:
        for module, rank in modules:
            down, up = (tensors.get_tensor(_tensor_name(module, side)) for side in "AB")
            scale = config.scale(module, rank)
            for name, rows in _canonical(base, module, up):
                _check_name(name, module, known.keys(), config)
                if name in pairs:
                    raise _TensorError(f"{name} is adapted twice")
                num_outputs, in_features = known[name]
                if (*down.shape, *rows.shape) != (rank, in_features, num_outputs, rank):
                    raise _TensorError(f"{module!r:.120} has not the shape of the model's layer")
                pair = (down.float(), rows.float() * scale)
                if not all(each.to(base.dtype).isfinite().all() for each in pair):
                    raise _TensorError(f"what it adds to {name} is not finite")
                pairs[name] = pair
    return pairs


def _modules(header: Mapping[str, TensorInfo], config: LoraConfig) -> Iterator[tuple[str, int]]:
    """The layers that an adapter changes, as it names them, and the rank of each."""
    found: dict[str, None] = {}
    for name, info in header.items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise _TensorError(f"the tensor {name!r:.160} is none of plain LoRA")
        if info.dtype not in _FLOATS or len(info.shape) != 2:
            raise _TensorError(
                f"{name!r:.160} is {info.dtype} of {info.shape}, no matrix of floats"
            )
        found[match["module"]] = None
    if not found:
        raise _TensorError("there are no tensors")
    for module in found:
        sides = [header.get(_tensor_name(module, side)) for side in "AB"]
        if None in sides:
            raise _TensorError(f"{module!r:.120} has one of its two tensors only")
        rank = sides[0].shape[0] if sides[0] else 0
        if rank not in config.ranks:
            ranks = ", ".join(map(str, sorted(config.ranks)))
            raise _TensorError(f"{module!r:.120} is of rank {rank}, but {_CONFIG} says {ranks}")
        yield module, rank


def _tensor_name(module: str, side: str) -> str:
    return f"base_model.model.{module}.lora_{side}.weight"


def _canonical(base: Base, module: str, up: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        yield from base.canonical_rows(module, up).items()
    except RuntimeError as error:
        raise _TensorError(f"{module!r:.120} cannot be divided: {error}") from error


def _check_name(name: str, module: str, known: Container[str], config: LoraConfig) -> None:
    """Refuse layers that cannot be adapted here, and those that the config says nothing of."""
    if name not in known:
        raise _TensorError(
            f"{module!r:.120} cannot be adapted: only projections of attention and of feed-forward "
            "layers without experts can"
        )
    layer = _LAYER.match(name)
    if config.layers is not None and (layer is None or int(layer[1]) not in config.layers):
        raise _TensorError(f"{module!r:.120} is not one of layers_to_transform in {_CONFIG}")
    if not config.has_target(module):
        raise _TensorError(f"{module!r:.120} is not one of target_modules in {_CONFIG}")
