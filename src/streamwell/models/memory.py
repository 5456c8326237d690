"""Whether a model fits into the memory that is left, before it is loaded."""

from __future__ import annotations

from pathlib import Path

import psutil

from streamwell.core.errors import NotEnoughMemory

#: What a process with PyTorch takes beside weights and cache, in bytes.
PROCESS_BYTES = 300 << 20
#: What is left of weights that are rounded when they are loaded.
_SHARES = {"auto": 1.0, "none": 1.0, "int8": 0.6, "int4": 0.4}

_CGROUP = Path("/sys/fs/cgroup")
_MIB = 1 << 20


def check_fits(weight_bytes: int, quantization: str, kv_cache_bytes: int) -> None:
    """Compare what a model needs, at the least, with what this machine or container has left.

    Args:
        weight_bytes: its weights as they are stored.
        quantization: how they are rounded when they are loaded.
        kv_cache_bytes: what its cache was given; 0 if it only may grow.

    Raises:
        NotEnoughMemory: it does not fit.
    """
    needed = int(weight_bytes * _SHARES[quantization]) + kv_cache_bytes + PROCESS_BYTES
    available = available_bytes()
    if needed > available:
        raise NotEnoughMemory(
            f"the model needs about {needed // _MIB} MiB of memory, and {available // _MIB} MiB "
            "are free: unload another, round its weights with --quantization, or lower "
            "--kv-cache-mib"
        )


def available_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory that can be taken without swapping, in bytes; in a container, of its share."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        reclaimable = _statistic(cgroup / "memory.stat", "inactive_file")
    except (OSError, ValueError):
        return available  # no limit, or not Linux
    return min(available, int(limit) - used + reclaimable) if limit.isdigit() else available


def _statistic(path: Path, name: str) -> int:
    pairs = (line.split() for line in path.read_text().splitlines())
    return next((int(value) for key, value in pairs if key == name), 0)
