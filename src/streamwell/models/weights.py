"""Which files of a model folder hold its weights, and what they say of them.

Safetensors, or a GGUF file: what `torch.load` reads is a program (pickle), and stays unread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from streamwell.core.errors import LoadError
from streamwell.models.gguf_folder import OTHER_WEIGHTS, WEIGHTS
from streamwell.models.gguf_header import PLAIN, read_gguf
from streamwell.models.safetensors_header import TensorInfo, read_header
from streamwell.models.small_files import read_object

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
#: Endings of weights that would run code when they are loaded, or that nothing here reads.
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".msgpack", ".h5")
#: Experts in MXFP4, as GPT-OSS's are published: two numbers in a byte.
MXFP4_BLOCKS = re.compile(r".*\.mlp\.experts\.(gate_up|down)_proj_blocks")
#: The largest models have some 200 files.
_MAX_FILES = 4096
#: Numbers of a model that are not saved, such as tables of positions.
_COMPUTED = 1 << 26


def weight_files(path: Path) -> list[Path]:
    """The files that the index names, if there is one: some folders hold the weights twice.

    A GGUF file counts where there is nothing else.

    Raises:
        LoadError: there are none, or the index names what is no safetensors file of the folder.
    """
    if (path / _INDEX).is_file():
        return [path / name for name in sorted(set(_weight_map(path).values()))]
    if (path / _SINGLE).is_file():
        return [path / _SINGLE]
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS, *sorted(path.glob(OTHER_WEIGHTS))]
    pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLED)
    hint = (
        f": {pickled[0]} may be a pickle, which runs code when it is loaded, and is never read; "
        "save the model with safetensors"
        if pickled
        else ""
    )
    raise LoadError(f"{path} has no safetensors files{hint}")


def is_gguf(path: Path) -> bool:
    """Whether the weights of a folder are a GGUF file.

    Raises:
        LoadError: there are none.
    """
    return weight_files(path)[0] == path / WEIGHTS


def has_rounded_weights(path: Path) -> bool:
    """Whether some are rounded, in a GGUF file or in MXFP4.

    Raises:
        LoadError: there are none, or a file is damaged.
    """
    tensors = read_headers(path)
    if is_gguf(path):
        return any(info.dtype not in PLAIN for info in tensors.values())
    return any(map(MXFP4_BLOCKS.fullmatch, tensors))


def read_headers(path: Path) -> dict[str, TensorInfo]:
    """All tensors of a model by name; the files are checked, the tensors not read.

    Those of a GGUF file have its own names and types.

    Raises:
        LoadError: a file is missing, is damaged, or says what cannot be.
    """
    files, is_in_gguf = weight_files(path), is_gguf(path)
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        found = read_gguf(file).tensors if is_in_gguf else read_header(file)
        if twice := sorted(tensors.keys() & found.keys()):
            raise LoadError(f"{file} has the tensor {twice[0]!r}, which another file has too")
        tensors |= found
    if (path / _INDEX).is_file():
        _check_index(path, tensors)
        if (path / _SINGLE).is_file():
            read_header(path / _SINGLE)  # Transformers would take this one
    for shard in path.glob("shard-*-model-*-of-*.safetensors"):  # and those before all others
        if shard not in files:
            raise LoadError(f"{shard} is a part of a distributed checkpoint, which is not served")
    return tensors


def max_elements(path: Path, *, is_quantized: bool) -> int:
    """The most numbers that an honest model can be made of, given these weights.

    Some are there twice in memory, and some tables are computed; quantised ones take a bit or more.
    """
    tensors = read_headers(path).values()
    if is_quantized:
        return _COMPUTED + 8 * sum(tensor.end - tensor.begin for tensor in tensors)
    return _COMPUTED + 2 * sum(tensor.num_elements for tensor in tensors)


def _weight_map(path: Path) -> Mapping[str, str]:
    """Which file each tensor is in, by the index."""
    file = path / _INDEX
    weight_map = read_object(file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise LoadError(f"{file} has no weight_map")
    names = {name if isinstance(name, str) else repr(name) for name in weight_map.values()}
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise LoadError(f"{file} names {name!r:.80}, which is no safetensors file beside it")
    if len(names) > _MAX_FILES:
        raise LoadError(f"{file} names {len(names)} files, more than {_MAX_FILES}")
    return weight_map


def _check_index(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    if missing := sorted(_weight_map(path).keys() - tensors.keys()):
        raise LoadError(
            f"{path / _INDEX} promises {len(missing)} tensors that its files lack, among them "
            f"{missing[0]!r:.80}"
        )
