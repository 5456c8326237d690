"""Runs the commands of the README and the guide: servers as long as needed, others to their end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from guide import ROOT, Block
from harness import free_port

DEADLINE_S = 240
_PROGRAMS = Path(sys.executable).parent
#: Of the server that the guide talks to.
_ADDRESS = re.compile(r"(http://)?(127\.0\.0\.1|localhost):8000")
#: Tests listen on loopback only.
_EVERYWHERE, _LOOPBACK = "--host 0.0.0.0", "--host 127.0.0.1"
_RUN = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}


def wait_until_ready(url: str, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Ask until the server is ready; the condition has no other sign than its answer."""
    deadline_s = time.monotonic() + timeout_s
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
def serving(
    command: list[str],
    cwd: Path,
    port: int,
    settings: Mapping[str, str],
    timeout_s: float = DEADLINE_S,
    last_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[str]:
    """Run a server's command until the address that this gives is left."""
    with subprocess.Popen(
        command, cwd=cwd, env=os.environ | settings, start_new_session=True
    ) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_ready(address, process, timeout_s)
            yield address
        finally:
            if process.poll() is None:
                os.killpg(process.pid, last_signal)


@contextmanager
def logged(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server of somebody else's, which writes to this file, until this is left."""
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def environment(folder: Path, hub: str = "") -> dict[str, str]:
    """Settings of what is typed in this folder: `streamwell` of this interpreter, and the hub."""
    if not (_PROGRAMS / "streamwell").exists():
        # an environment on top of another one has no programs of that one
        script = folder / "bin" / "streamwell"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m streamwell "$@"\n')
        script.chmod(0o755)
    return {
        "PATH": f"{_PROGRAMS}:{folder / 'bin'}:{os.environ['PATH']}",
        "STREAMWELL_DATA_DIR": str(folder / "data"),
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_DISABLE_XET": "1",
        **({"HF_ENDPOINT": hub, "HF_HUB_OFFLINE": ""} if hub else {"HF_HUB_OFFLINE": "1"}),
    }


@contextmanager
def served(
    block: Block, folder: Path, settings: Mapping[str, str], timeout_s: float = DEADLINE_S
) -> Iterator[str]:
    """Run a block that starts a server, until the address that this gives is left."""
    port = free_port()
    command = ["bash", "-euc", block.code.replace(_EVERYWHERE, _LOOPBACK)]
    place = {**settings, "STREAMWELL_PORT": str(port)}
    with serving(command, folder, port, place, timeout_s) as address:
        yield address


def answer_of(address: str) -> str:
    """What the first model of a server says."""
    body = json.dumps({"prompt": "Who are you?", "max_tokens": 8, "ignore_eos": True}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{address}/generate", body, headers)
    with urllib.request.urlopen(request) as response:
        text: str = response.read().decode()
        return text


def run_page(blocks: list[Block], folder: Path, shared: str, hub: str) -> list[str]:
    """Run a page from its beginning to its end; returns what each block printed.

    A block that is `streamwell serve` and no more starts a server that the blocks after it talk
    to; without flags it is the shared one. Blocks that are not of the page are left out.
    """
    other_port, settings = free_port(), environment(folder, hub)
    address, printed = shared, []
    with ExitStack() as server:
        for block in blocks:
            if not block.is_of_its_page or block.language not in _RUN:
                continue
            if block.saved_as:
                (folder / block.saved_as).write_text(block.code, encoding="utf-8")
            elif block.serves and block.code.strip() == "streamwell serve":
                address = shared
            elif block.serves:
                server.close()
                address = server.enter_context(served(block, folder, settings))
            else:
                code = _ADDRESS.sub(address, block.code)
                code = code.replace("8001", str(other_port))
                place = settings | {"STREAMWELL_URL": address}
                printed.append(run(block, code, folder, place))
    return printed


def run(
    block: Block,
    code: str,
    folder: Path,
    settings: Mapping[str, str],
    timeout_s: float = DEADLINE_S,
) -> str:
    """Run a block's commands to their end, and well; returns what they printed."""
    with subprocess.Popen(
        [*_RUN[block.language], code],
        cwd=ROOT if block.is_in_checkout else folder,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert 0 == process.returncode, f"{block}: {stderr}"
    return stdout
