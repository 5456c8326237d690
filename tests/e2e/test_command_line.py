"""The other commands, as processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from harness import ServerProcess, clean_environment, free_port

pytestmark = pytest.mark.slow


def _run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamwell", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=clean_environment() | {"COLUMNS": "120"} | more,
        timeout=120,
        check=False,
    )


def test_chat_keeps_the_conversation(brooklet: ServerProcess) -> None:
    """Every line gets an answer; empty ones are no turn. In a pipe there are no prompts."""
    flags = ("--url", brooklet.url, "--model", "brooklet", "--system", "Be kind.")
    result = _run("chat", *flags, stdin="Hello!\n\nWho are you?\n")

    assert 0 == result.returncode, result.stderr
    assert 2 == len(result.stdout.splitlines())
    assert all(result.stdout.splitlines())


def test_chat_tells_what_is_wrong(brooklet: ServerProcess) -> None:
    """An unknown model is told in one line, without a traceback."""
    result = _run("chat", "--url", brooklet.url, "--model", "gpt-7", stdin="Hello!\n")

    assert 2 == result.returncode
    assert "gpt-7" in result.stderr
    assert "Traceback" not in result.stderr


def test_chat_tells_that_nobody_is_there() -> None:
    """A server that was asked for by name and does not answer: one line, exit status 1."""
    url = f"http://127.0.0.1:{free_port()}"
    result = _run("chat", "--url", url, stdin="Hello!\n")

    assert 1 == result.returncode
    assert result.stderr.startswith(f"streamwell: no server answers at {url}: start one with")
    assert 1 == result.stderr.count("\n")


def test_doctor_finds_nothing_wrong() -> None:
    """Where the tests run, everything is fine: versions and advice, exit code 0."""
    result = _run("doctor")

    assert 0 == result.returncode, result.stdout + result.stderr
    for name in ("python", "torch", "free memory", "instruction sets", "built-in", "data folder"):
        assert name in result.stdout


@pytest.mark.parametrize(
    ("port", "found"),
    [("9", "port 9"), (" 9 ", "port 9"), ("many", "1 to 65535"), ("", "1 to 65535")],
)
def test_doctor_looks_at_the_port_of_its_shell(port: str, found: str) -> None:
    """The one that `streamwell serve` would take; one that is none is a problem."""
    result = _run("doctor", "--json", STREAMWELL_PORT=port)

    assert found in result.stdout
    assert int(not port.strip().isdecimal()) == result.returncode


def test_doctor_speaks_to_programs() -> None:
    """`--json`: every fact with a name, a finding, advice, and whether it is a problem."""
    result = _run("doctor", "--json")

    facts = json.loads(result.stdout)["facts"]
    assert all({"name", "found", "advice", "is_problem"} == set(fact) for fact in facts)
    assert not any(fact["is_problem"] for fact in facts)


@pytest.mark.parametrize(
    "command", [[], ["serve"], ["chat"], ["run"], ["runs"], ["models"]], ids=str
)
def test_help_is_given(command: list[str]) -> None:
    """Every command has help."""
    result = _run(*command, "--help")

    assert 0 == result.returncode
    assert "Usage: streamwell" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "65536"],
        ["serve", "--no-such-flag"],
        ["serve", "./no/such/folder"],
        ["no-such-command"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_told(arguments: list[str]) -> None:
    """What is wrong is said in a few words, not with a traceback, and the exit code is not 0."""
    result = _run(*arguments)

    assert result.returncode in {1, 2}
    assert result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
