"""The commands that talk to a running server, as processes, in pipes and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from harness import DEADLINE_S, ServerProcess, StartServer, clean_environment, eventually

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

KEY = "sk-operator"
SLOW = ("--engine", "scripted", "--scripted-step-s", "0.02")
#: The same answers, which take ten seconds: time enough to die in.
SLOWER = ("--engine", "scripted", "--scripted-step-s", "0.2")
ASK = ("--max-tokens", "50", "--seed", "1")
BODY = {
    "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 50,
    "seed": 1,
}
NO_TEXT = "streamwell: the prompt must be text in UTF-8\n"
ENDLESS = {"prompt": "Once upon a time", "background": True, "ignore_eos": True, "max_tokens": 2000}


def environment(server: ServerProcess, **more: str) -> dict[str, str]:
    """What tells a command which server it is, and the key of that."""
    own = {"STREAMWELL_URL": server.url, "STREAMWELL_API_KEY": KEY, "COLUMNS": "140"}
    return clean_environment() | own | more


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "streamwell", *arguments]


def run(
    server: ServerProcess, *arguments: str, stdin: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(server, **more),
        timeout=DEADLINE_S,
        check=False,
    )


class Started:
    """A command that runs, and what it has said."""

    def __init__(self, server: ServerProcess, *arguments: str) -> None:
        """Returns when it has said something."""
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(server),
            bufsize=0,  # what is read ahead would be lost to `communicate`
        )
        assert self.process.stdout is not None
        self._first = self.process.stdout.read(1)

    def end(self) -> tuple[str, str]:
        """All that it says on standard output, and what on the other one."""
        rest, errors = self.process.communicate(timeout=DEADLINE_S)
        return ((self._first or b"") + rest).decode(), errors.decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The scripted engine behind an operator's key, and a folder with one more model."""
    models_dir = tmp_path_factory.mktemp("models")
    shutil.copytree(brooklet_path(), models_dir / "second")
    flags = ("--admin-key", KEY, "--models-dir", str(models_dir), "--log-level", "warning")
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), *SLOW, *flags)) as server:
        server.client.headers["authorization"] = f"Bearer {KEY}"
        server.wait_until_ready()
        yield server


def test_run_prints_the_answer_and_nothing_else(site: ServerProcess) -> None:
    """Plain text and a line's end on standard output; what is piped in is part of the prompt."""
    bare = run(site, "run", "Hello!", *ASK)
    piped = run(site, "run", "Hel", *ASK, stdin="lo!\n")

    assert 0 == bare.returncode, bare.stderr
    assert site.text(BODY, "/v1/chat/completions").rstrip("\n") == bare.stdout.rstrip("\n")
    assert bare.stdout.endswith("\n")
    message = {"role": "user", "content": "Hel\n\nlo!"}
    expected = site.text(BODY | {"messages": [message]}, "/v1/chat/completions")
    assert expected.rstrip("\n") == piped.stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("shell", "code", "told"),
    [
        ('"$@" Hello! | head -c 1', 0, ""),
        ('"$@" Hello! >&-', 0, ""),
        ('"$@" Hello! >/dev/full', 1, "streamwell: No space left on device\n"),
        ('printf "\\377" | "$@"', 2, NO_TEXT),
        ('printf "\\377" | PYTHONIOENCODING=:strict "$@"', 2, NO_TEXT),
        ('"$@" "$(printf "\\377")"', 2, NO_TEXT),
        ('PYTHONIOENCODING=ascii "$@" Hello!', 0, ""),
        ('"$@" two words </dev/null', 0, ""),
    ],
)
def test_run_stands_odd_ends(site: ServerProcess, shell: str, code: int, told: str) -> None:
    """Pipes that are left, closed or full, and bytes that are no text; never a traceback."""
    result = subprocess.run(
        ["bash", "-c", shell, "bash", *command("run", "--max-tokens", "20", "--seed", "1")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",  # one byte may be a part of a character
        env=environment(site),
        timeout=DEADLINE_S,
        check=False,
    )

    cut = "streamwell: the answer was cut at its longest length\n"
    assert (code, told) == (result.returncode, result.stderr.replace(cut, ""))


def test_run_goes_on_after_the_server_was_killed(start_server: StartServer, tmp_path: Path) -> None:
    """The text is that of a run that nobody cut, every character once."""
    server = start_server(*SLOWER, data_dir=tmp_path)
    server.wait_until_ready()
    started = Started(server, "run", "Hello!", *ASK)
    server.signal(signal.SIGKILL)
    server.wait()
    heir = start_server(*SLOW, data_dir=tmp_path, port=server.port)
    text, errors = started.end()
    whole = heir.text(BODY, "/v1/chat/completions")

    assert 0 == started.process.returncode, errors
    assert whole.rstrip("\n") == text.rstrip("\n")
    assert "trying again" in errors
    assert heir.is_ready()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("run",), 2, "there is no prompt"),
        (("run", "Hello!", "--model", "gpt-7"), 2, "'gpt-7' is not served"),
        (("run", "Hello!", "--api-key", "wrong"), 2, "no valid API key"),
        (("run", "Hello!", "--url", "http://127.0.0.1:1"), 1, "start one with `streamwell serve`"),
        (("runs", "follow", "run-nothing"), 2, "No run with this id"),
        (("runs", "cancel"), 2, "name the runs"),
        (("models", "load", "../etc"), 2, "'../etc' is not served"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_told_in_one_line(
    site: ServerProcess, arguments: tuple[str, ...], code: int, told: str
) -> None:
    """On standard error, with the exit code that the documentation has; no traceback."""
    result = run(site, *arguments)

    assert (code, "") == (result.returncode, result.stdout)
    assert told in result.stderr
    assert 1 == result.stderr.count("\n")


def test_an_interrupt_cancels_the_run(site: ServerProcess) -> None:
    """Ctrl-C: exit code 130, and the engine has nothing more to do at once."""
    started = Started(site, "run", "Hello!", "--max-tokens", "2000")
    started.process.send_signal(signal.SIGINT)
    started.end()

    assert 130 == started.process.returncode
    assert [] == site.client.get("/v1/runs").json()["data"]


def test_runs_are_listed_followed_and_cancelled(site: ServerProcess) -> None:
    """A follower sees a run from its beginning to the end that somebody else puts to it."""
    run_id = site.post("/v1/runs", ENDLESS).json()["id"]
    listed = [json.loads(line) for line in run(site, "runs", "--json").stdout.splitlines()]
    table = run(site, "runs").stdout
    follower = Started(site, "runs", "follow", "last")
    cancelled = run(site, "runs", "cancel", run_id)
    shown, errors = follower.end()

    assert [run_id] == [entry["id"] for entry in listed]
    assert run_id in table
    assert f"{run_id} cancelled\n" == cancelled.stdout
    text = site.client.get(f"/v1/runs/{run_id}").json()["choices"][0]["text"]
    assert text + "\n" == shown
    assert "cancelled" in errors
    assert "No run is in hand.\n" == run(site, "runs").stdout


def test_models_are_listed_loaded_and_unloaded(site: ServerProcess) -> None:
    """With state, size and fit, for people and for programs."""

    def shown() -> tuple[str, bool | None]:
        lines = run(site, "models", "--json").stdout.splitlines()
        cards = {card["id"]: card for card in map(json.loads, lines)}
        return cards["second"]["status"], cards["second"]["fits"]

    assert ("unloaded", True) == shown()
    table = run(site, "models").stdout
    assert "MiB" in table
    assert "yes" in table
    assert "second ready\n" == run(site, "models", "load", "second").stdout
    assert ("ready", None) == shown()
    assert "second unloaded\n" == run(site, "models", "unload", "second").stdout
    assert ("unloaded", True) == shown()


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, server: ServerProcess, *arguments: str, **more: str) -> None:
        self._master, slave = pty.openpty()
        # the first terminal that the leader of a session opens is the one that can interrupt it
        shell = ("sh", "-c", 'exec "$@" <"$TTY" >"$TTY" 2>&1', "sh")
        self.process = subprocess.Popen(
            [*shell, *command(*arguments)],
            env=environment(server, TERM="dumb", TTY=os.ttyname(slave), **more),
            start_new_session=True,
        )
        self._slave = slave  # open, so that the terminal is there until the end
        os.set_blocking(self._master, False)
        self._screen = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> str:
        """Wait until the text is on the screen; gives what came before it, which is done with."""
        eventually(lambda: text.encode() in self._read(), f"{text!r} is on the screen")
        shown, _, self._screen = self._screen.partition(text.encode())
        return shown.decode().replace("\r\n", "\n")

    def _read(self) -> bytes:
        with suppress(OSError):  # nothing to read, or the command has ended
            self._screen += os.read(self._master, 1 << 16)
        return self._screen

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def chat(server: ServerProcess, folder: Path, *flags: str) -> Iterator[Terminal]:
    terminal = Terminal(server, "chat", *flags, XDG_DATA_HOME=str(folder))
    with closing(terminal):
        terminal.wait_for("> ")
        yield terminal


def test_chat_has_commands_and_a_history(site: ServerProcess, tmp_path: Path) -> None:
    """Several lines are one message; an answer is stopped, asked for again, saved and loaded."""
    saved = tmp_path / "talk.json"
    with chat(site, tmp_path) as terminal:
        terminal.type("/model gpt-7\n")
        assert "there is no model 'gpt-7'" in terminal.wait_for("\n> ")
        terminal.type("/system Be kind.\n")
        terminal.wait_for("the system prompt is set")
        terminal.type("one \\\n")
        terminal.wait_for(". ")
        terminal.type("two\n")
        eventually(lambda: site.client.get("/v1/runs").json()["data"], "an answer comes")
        terminal.type("/stop\n")
        terminal.wait_for("[stopped]")
        eventually(lambda: not site.client.get("/v1/runs").json()["data"], "its run has ended")
        terminal.type(f"/save {saved}\n")
        terminal.wait_for("2 messages are in")
        terminal.type("/retry\n")
        eventually(lambda: site.client.get("/v1/runs").json()["data"], "another answer comes")
        terminal.type("\x03")
        terminal.wait_for("[stopped]")
        terminal.type("/quit\n")
        assert 0 == terminal.process.wait(DEADLINE_S)

    talk = json.loads(saved.read_text())
    assert ("Be kind.", "one \ntwo") == (talk["system"], talk["messages"][0]["content"])
    assert "/retry" in (tmp_path / "streamwell" / "chat_history").read_text().splitlines()
    with chat(site, tmp_path) as terminal:
        terminal.type(f"/load {saved}\n")
        terminal.wait_for("2 messages were read")


def test_shells_complete_commands() -> None:
    """What is printed for bash is a script that bash can read, and knows our commands."""
    script = subprocess.run(
        command("completion", "bash"),
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    ).stdout
    checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False)

    assert 0 == checked.returncode
    assert "doctor" in script
