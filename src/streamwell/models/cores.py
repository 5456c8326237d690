"""How many processors there are to compute with."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def num_cores(cgroup: Path = _CGROUP) -> int:
    """Processors that this process may use; in a container its share of the machine's time.

    More threads than that would use the share up while they wait for each other, and then all of
    them would stand still for the rest of each period.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores  # no limit, or not Linux
    return min(cores, max(1, math.ceil(int(quota) / int(period)))) if quota.isdigit() else cores
