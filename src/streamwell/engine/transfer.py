"""Moves what a step computes on the host to the device that runs the model."""

from __future__ import annotations

import torch


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A host tensor on the device; to a GPU it travels while the host goes on."""
    if device.type != "cuda":
        return tensor.to(device)
    # from pageable memory the copy would wait for the device; PyTorch keeps the pinned one until
    # it has been read
    return tensor.pin_memory().to(device, non_blocking=True)
