"""Starts an engine process.

Standard library only: the first process starts before the server has imported the rest, since
both have seconds of imports before them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

#: OpenMP's threads spin while they wait for each other, GNU's for milliseconds: between its steps
#: an engine would take the processors from another one. So many turns are longer than any wait
#: within a step; after them a thread sleeps. Two engines at work were twice as fast for it, and one
#: alone was not slower.
_SPIN = {"GOMP_SPINCOUNT": "10000"}


#: How long a killed process may take to end.
END_S = 10.0
#: The module that runs our own engine.
OWN_PROGRAM = "streamwell.engine.process"


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A started process, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    def end(self) -> int | None:
        """Kill the process if it still runs, with its group if it leads one, and wait for it.

        Returns its exit code; `None` if it is stuck in the kernel, as in a driver, and still there
        after `END_S`. Blocks; calling it again is harmless.
        """
        self.connection.close()
        if (exit_code := self.process.returncode) is not None:
            return exit_code  # its number may be another's by now
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(ProcessLookupError):  # it leads none
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return None


def launch(program: str = OWN_PROGRAM) -> EngineProcess:
    """Start a process that runs this module, and waits for its configuration."""
    ours, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        process = subprocess.Popen(
            (sys.executable, "-m", program, str(fd)),
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            env=_SPIN | os.environ,
        )
    return EngineProcess(process, ours)
