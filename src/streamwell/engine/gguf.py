"""Reads the tensors of GGUF files, under the names and in the layouts of Transformers.

Rounded ones are turned back into floats by the `gguf` package of llama.cpp, some rows at a time.
None of them is a view of a file, which may be replaced while the model is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from streamwell.core.errors import LoadError
from streamwell.engine.saved_weights import SavedRows, SavedWeights
from streamwell.models.gguf_architectures import INNER, OUTER, Architecture, architecture_of
from streamwell.models.gguf_header import GgufHeader, Value, read_gguf
from streamwell.models.safetensors_header import TensorInfo

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
#: Belong to the config.
_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
#: Elements that are turned back into floats at once: keeps what is beside them small.
_CHUNK = 1 << 20
_MAX_EXPERTS = 4096


class GgufWeights(SavedWeights):
    """The tensors of a model by Transformers' names; those that are rounded in it as `dtype`."""

    def __init__(self, files: Sequence[Path], dtype: torch.dtype) -> None:
        """`files` are the parts of one model; the first says what it is.

        Raises:
            LoadError: a tensor is not known, or the package to read it is not installed.
        """
        headers = [read_gguf(file) for file in files]
        metadata = headers[0].metadata
        architecture = architecture_of(metadata)
        if architecture is None:
            raise LoadError(f"{files[0]} is of an architecture that is not known")
        self._architecture, self._heads = architecture, _heads(metadata)
        self._dtype = dtype
        self._infos: dict[str, TensorInfo] = {}
        #: The whole file that a tensor is in.
        self._contents: dict[str, npt.NDArray[np.uint8]] = {}
        for header in headers:
            _check_layers(header, metadata)
            infos = dict(_all_renamed(header, architecture))
            self._infos |= infos
            # torch wants what could be written to; slices of `memmap` itself are slow to make
            content = np.asarray(np.memmap(header.file, dtype=np.uint8, mode="c"))
            self._contents |= dict.fromkeys(infos, content)
        for kind in {info.dtype for info in self._infos.values()} - _PLAIN.keys():
            _check_package(kind)
        self.outline = {
            name: torch.empty(info.shape, dtype=_PLAIN.get(info.dtype, dtype), device="meta")
            for name, info in self._infos.items()
        }

    def __getitem__(self, name: str) -> torch.Tensor:
        info = self._infos[name]
        tensor = _read(self._bytes(name), info, self._dtype)
        return _undone(name, tensor, self._architecture, self._heads)

    def saved_kind(self, name: str) -> str | None:
        kind = self._infos[name].dtype
        return None if kind in _PLAIN else kind

    def saved_rows(self, name: str) -> SavedRows:
        info = self._infos[name]
        blocks = torch.from_numpy(self._bytes(name)).view(info.shape[0], -1)
        return SavedRows(info.dtype, _undone(name, blocks, self._architecture, self._heads))

    def _bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """As they stand in the file."""
        info = self._infos[name]
        return self._contents[name][info.begin : info.end]


def _check_layers(header: GgufHeader, metadata: Mapping[str, Value]) -> None:
    """Experts of layers that are not there would be spread out for nothing, by the thousand."""
    count = metadata.get(f"{metadata['general.architecture']}.block_count")
    matches = (_TENSOR.fullmatch(name) for name in header.tensors)
    last = max((int(match[1]) for match in matches if match), default=-1)
    if type(count) is int and last >= count:
        raise LoadError(
            f"{header.file} has weights of layer {last}, and its block_count is {count}"
        )


def _check_package(kind: str) -> None:
    try:
        import gguf.quants  # noqa: F401
    except ImportError as error:
        raise LoadError(
            f"GGUF files of the type {kind} need a package: pip install 'streamwell[gguf]'"
        ) from error


def _read(raw: npt.NDArray[np.uint8], info: TensorInfo, dtype: torch.dtype) -> torch.Tensor:
    if info.dtype in _PLAIN:
        return torch.from_numpy(raw.copy()).view(_PLAIN[info.dtype]).view(info.shape)
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[info.dtype]
    tensor = torch.empty(info.shape, dtype=dtype)
    rows = tensor.view(-1, info.shape[-1])
    blocks = raw.reshape(len(rows), -1)
    step = max(1, _CHUNK // info.shape[-1])
    for start in range(0, len(rows), step):
        chunk = dequantize(blocks[start : start + step], kind)
        rows[start : start + step] = torch.from_numpy(chunk)
    return tensor


def _all_renamed(
    header: GgufHeader, architecture: Architecture
) -> Iterator[tuple[str, TensorInfo]]:
    """The tensors of a file by Transformers' names, but those that belong to the config."""
    for name, info in header.tensors.items():
        if name not in _FACTORS:
            yield from _renamed(header.file, name, info, architecture)


def _renamed(
    file: Path, name: str, info: TensorInfo, architecture: Architecture
) -> Iterator[tuple[str, TensorInfo]]:
    """Transformers' name; experts come one by one."""
    outer, _, kind = name.rpartition(".")
    if outer in OUTER:
        yield f"{OUTER[outer]}.{kind}", info
        return
    match = _TENSOR.fullmatch(name)
    leaf = match and {**INNER, **architecture.names}.get(match[2])
    if not match or not leaf:
        raise LoadError(f"{file} has a tensor {name!r:.80}, which is not understood")
    full = f"model.layers.{match[1]}.{leaf}.{match[3]}"
    if "{}" in full:
        yield from ((full.format(i), part) for i, part in enumerate(_experts(file, info)))
    elif leaf == "mlp.shared_expert_gate":
        yield full, replace(info, shape=(1, info.num_elements))
    else:
        yield full, info


def _experts(file: Path, info: TensorInfo) -> Iterator[TensorInfo]:
    """The parts of a tensor of all experts."""
    if len(info.shape) not in (2, 3) or not 0 < info.shape[0] <= _MAX_EXPERTS:
        raise LoadError(f"{file} has experts in an impossible shape: {info.shape}")
    size = (info.end - info.begin) // info.shape[0]
    for i in range(info.shape[0]):
        begin = info.begin + i * size
        yield TensorInfo(info.dtype, info.shape[1:], begin, begin + size)


def _undone(
    name: str, tensor: torch.Tensor, architecture: Architecture, heads: tuple[int, int]
) -> torch.Tensor:
    """What llama.cpp's converter did to a tensor, undone."""
    if architecture.adds_one and name.endswith("norm.weight"):
        return (tensor.float() - 1).to(tensor.dtype)
    is_query = ".self_attn.q_proj." in name
    if not architecture.is_paired or not (is_query or ".self_attn.k_proj." in name):
        return tensor
    # pairs of rows that turn together stand side by side: they go into both halves of a head
    pairs = tensor.view(heads[0] if is_query else heads[1], -1, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)


def _heads(metadata: Mapping[str, Value]) -> tuple[int, int]:
    """How many heads of queries and of keys there are."""
    prefix = f"{metadata['general.architecture']}.attention"
    num_heads = metadata[f"{prefix}.head_count"]
    num_kv_heads = metadata.get(f"{prefix}.head_count_kv", num_heads)
    if type(num_heads) is not int or type(num_kv_heads) is not int:
        raise TypeError("the numbers of heads are no numbers")
    return num_heads, num_kv_heads
