"""An engine of Docker: the one that runs on this machine, or one that is started for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from commands import logged
from harness import eventually

_QUICK_S = 120
_START_S = 60


@dataclass(frozen=True, slots=True)
class Engine:
    """Talks to an engine by Docker's command line.

    Attributes:
        address: Its socket; empty for the one that the command line takes by itself.
    """

    address: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """The environment of commands that are to talk to it."""
        return {"DOCKER_HOST": self.address} if self.address else {}

    def __call__(self, *arguments: str) -> str:
        """What a command prints that ends well."""
        done = self._run(arguments)
        assert 0 == done.returncode, f"docker {' '.join(arguments)}: {done.stderr}"
        return done.stdout.strip()

    def can(self, *arguments: str) -> bool:
        """Whether a command ends well."""
        return self._run(arguments).returncode == 0

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *arguments],
            env=os.environ | self.settings,
            capture_output=True,
            text=True,
            timeout=_QUICK_S,
            check=False,
        )


def missing() -> str:
    """Why there is no engine and none can be started; empty if there is one, or can be."""
    if not shutil.which("docker"):
        return "there is no Docker"
    if not Engine().can("compose", "version"):
        return "Docker has no command `compose`"
    if not (Engine().can("info") or _can_start()):
        return "no engine of Docker runs, and none can be started"
    return ""


@contextmanager
def running() -> Iterator[Engine]:
    """The engine that runs, or one with folders of its own, until this is left."""
    if Engine().can("info"):
        yield Engine()
        return
    with TemporaryDirectory(prefix="docker-") as name:
        folder = Path(name)
        engine = Engine(f"unix://{folder / 'socket'}")
        command = ["dockerd", "--host", engine.address, "--pidfile", str(folder / "pid")]
        command += ["--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
        with logged(command, folder / "log") as daemon:
            eventually(lambda: daemon.poll() or engine.can("info"), "an engine", _START_S)
            assert daemon.poll() is None, (folder / "log").read_text(encoding="utf-8")
            yield engine


def _can_start() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and bool(shutil.which("dockerd"))


if __name__ == "__main__":
    sys.exit(missing() or 0)
