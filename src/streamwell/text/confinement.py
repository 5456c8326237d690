"""What a process takes from itself before it touches what may be hostile.

The kernel keeps these limits, whatever code runs: also that of who broke out of all others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator

#: What a process needs to start; keys are not among it.
_VARIABLES = ("LANG", "LC_ALL", "LC_TIME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TZ")


def bare_environment() -> dict[str, str]:
    """The environment for a process that is to be confined: it learns of no secrets."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def confine(*, memory_bytes: int) -> None:
    """From now on: so much memory, and no more files, connections or processes.

    What is open stays open. Where the platform lacks a limit, or the user is above it (root may
    start processes still), the others hold.
    """
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End the process with SIGPROF if what is done within takes so much time of the CPU.

    Not of the clock: on a busy machine nobody is punished for waiting. A call into C, however
    long, is no shelter, for the kernel ends the process and not Python.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
