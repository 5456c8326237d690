"""Where `install.sh` puts the peers, and how their threads are placed."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1] / "peers-env"

LLAMA_SOURCE = ROOT / "llama" / "vendor" / "llama.cpp"
LLAMA_PROGRAMS = ROOT / "llama" / "build" / "bin"
OPENVINO_PROGRAMS = ROOT / "openvino" / "bin"
VLLM_PROGRAMS = ROOT / "vllm" / "bin"
#: The models in the formats that they need.
MODELS = ROOT / "models"


def installed_version(peer: str) -> str | None:
    """What `install.sh` has installed for this peer, if it has come to its end."""
    try:
        return (ROOT / peer / ".installed").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def openmp_places(num_threads: int) -> dict[str, str]:
    """Each OpenMP thread on a core of its own.

    Left to the scheduler, two threads that wait for each other by spinning end up on one core now
    and then, and are several times slower until they part.
    """
    return {"OMP_NUM_THREADS": str(num_threads), "OMP_PROC_BIND": "true"}


def vllm_places(num_threads: int) -> dict[str, str]:
    """The same for vLLM, which binds its threads itself; and 2 GiB for its cache."""
    cores = sorted(os.sched_getaffinity(0))[:num_threads]
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CACHE_ROOT": str(ROOT / "vllm" / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
    }
