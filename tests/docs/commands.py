"""Runs the commands of the README and the guide: servers as long as needed, others to their end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from guide import Block

DEADLINE_S = 240
_PROGRAMS = Path(sys.executable).parent
#: Of the server that the guide talks to.
_ADDRESS = re.compile(r"(http://)?(127\.0\.0\.1|localhost):8000")
_RUN = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    """Ask until the server is ready; the condition has no other sign than its answer."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, "the server has ended; its reason is above"
        try:
            with urllib.request.urlopen(f"{url}/ready") as response:
                assert 200 == response.status
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server did not become ready")


@contextmanager
def serving(command: list[str], cwd: Path, port: int, settings: Mapping[str, str]) -> Iterator[str]:
    """Run a server's command until the address that this gives is left."""
    with subprocess.Popen(
        command, cwd=cwd, env=os.environ | settings, start_new_session=True
    ) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_ready(address, process)
            yield address
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)


def run_page(blocks: list[Block], folder: Path, shared: str) -> list[str]:
    """Run a page from its beginning to its end; returns what each block printed.

    A block that is `streamwell serve` and no more starts a server that the blocks after it talk
    to; without flags it is the shared one. Blocks with a reason not to are left out.
    """
    port, other_port = free_port(), free_port()
    path = f"{_PROGRAMS}:{os.environ['PATH']}"
    settings = {"PATH": path, "STREAMWELL_DATA_DIR": str(folder / "data"), "HF_HUB_OFFLINE": "1"}
    address, printed = shared, []
    with ExitStack() as server:
        for block in blocks:
            if block.not_run or block.language not in _RUN:
                continue
            if block.serves and block.code.strip() == "streamwell serve":
                address = shared
            elif block.serves:
                server.close()
                command = ["bash", "-euc", block.code]
                place = settings | {"STREAMWELL_PORT": str(port)}
                address = server.enter_context(serving(command, folder, port, place))
            else:
                code = _ADDRESS.sub(address, block.code)
                code = code.replace("8001", str(other_port))
                place = settings | {"STREAMWELL_URL": address}
                printed.append(_run(block, code, folder, place))
    return printed


def _run(block: Block, code: str, folder: Path, settings: Mapping[str, str]) -> str:
    with subprocess.Popen(
        [*_RUN[block.language], code],
        cwd=folder,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=DEADLINE_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert 0 == process.returncode, f"{block}: {stderr}"
    return stdout
