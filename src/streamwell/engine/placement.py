"""Where a model computes, and in what: its device and its dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.messages import DEFAULT_KV_CACHE_BYTES, EngineConfig

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

#: How much of a GPU's free memory the KV cache may have.
_GPU_CACHE_SHARE = 0.7


def device_of(name: str) -> torch.device:
    """The device of this name; `auto` is a GPU where there is one.

    Raises:
        LoadError: there is none, or its draws cannot be computed there, in 64 bits.
    """
    if name.partition(":")[0] == "mps":
        raise LoadError("--device mps is not supported: it has no float64; use cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = _found(name)
    if device.type == "cuda":
        # cuDNN plans attention anew for each length, and keeps all of its plans: a decode step is
        # one token longer than the one before
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    return device


def _found(name: str) -> torch.device:
    """Raises `LoadError` if PyTorch knows no such device, or finds none in this machine."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise LoadError(f"--device {name!r} is not known; it is auto, cpu or cuda") from None
    if device.type == "cpu":
        return device
    accelerator: Any = getattr(torch, device.type, None)
    if not hasattr(accelerator, "is_available"):
        raise LoadError(f"--device {name!r} computes nothing; it is auto, cpu or cuda")
    num_found = accelerator.device_count() if accelerator.is_available() else 0
    if (device.index or 0) >= num_found:
        raise LoadError(f"--device {name!r} is not there: PyTorch finds {num_found} of them here")
    return device


def dtype_of(
    config: EngineConfig, model_config: Mapping[str, Any], device: torch.device
) -> torch.dtype:
    """The dtype asked for, or the saved one, or the nearest that this device computes fast."""
    if config.dtype != "auto":
        return _DTYPES[config.dtype]
    saved = _DTYPES.get(
        model_config.get("dtype") or model_config.get("torch_dtype") or "", torch.float32
    )
    if device.type != "cpu" or saved is torch.float32:
        return saved
    # float16 has no fast path on any CPU, bfloat16 only where the hardware has it
    return torch.bfloat16 if _has_bfloat16() else torch.float32


def default_kv_cache_bytes(device: torch.device) -> int:
    """The most that a KV cache gets when nothing is said, beside the weights that are there.

    Main memory has other uses. A GPU's has none but what steps work with, and engines beside this
    one.
    """
    if device.type != "cuda":
        return DEFAULT_KV_CACHE_BYTES
    torch.cuda.empty_cache()  # what loading worked with
    num_free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(_GPU_CACHE_SHARE * num_free_bytes)


class PlacedWeights(Mapping[str, torch.Tensor]):
    """Weights on a device, in a dtype: each is brought there when it is asked for.

    So no more of them is there twice than one layer is made of, while a model is put together.
    """

    def __init__(
        self, weights: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._weights = weights
        self._device = device
        self._dtype = dtype
        #: Those that somebody holds: an embedding that is the output layer, too, is there once.
        self._placed: WeakValueDictionary[str, torch.Tensor] = WeakValueDictionary()

    def __getitem__(self, name: str) -> torch.Tensor:
        if (placed := self._placed.get(name)) is None:
            placed = self._placed[name] = self._weights[name].to(self._device, self._dtype)
        return placed

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def _has_bfloat16() -> bool:
    flags = torch.backends.cpu.get_cpu_capability()
    return "AVX512" in flags and bool(torch.cpu._is_avx512_bf16_supported())
