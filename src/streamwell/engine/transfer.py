"""Moves what a step computes between the host and the device that runs the model."""

from __future__ import annotations

import torch


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A host tensor on the device; to a GPU it travels while the host goes on."""
    if device.type != "cuda":
        return tensor.to(device)
    # from pageable memory the copy would wait for the device; PyTorch keeps the pinned one until
    # it has been read
    return tensor.pin_memory().to(device, non_blocking=True)


class Arrival:
    """A tensor that comes to the host when its device has computed it; the host goes on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._on_host = tensor
        self._copied: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._on_host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._on_host.copy_(tensor, non_blocking=True)
            self._copied = torch.cuda.current_stream(tensor.device).record_event()

    def wait(self) -> torch.Tensor:
        """The tensor on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._on_host
