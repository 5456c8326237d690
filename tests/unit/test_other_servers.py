"""`models`, `runs` and `run` in front of servers of another make, and with odd arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stand_in import CHAT, HELLO, JSON, MODELS, OURS, SSE, Answers, serving

from streamwell.cli import models, runs
from streamwell.cli.address import Address
from streamwell.cli.run import run
from streamwell.core.errors import InvalidRequest

FITS, LOAD = f"{MODELS}?fits=true", "POST /v1/models/load"
RUNS, NEWEST = "GET /v1/runs?limit=100", "GET /v1/runs?limit=1"
EVENTS = "GET /v1/runs/r1/events?starting_after=-1"


def load(*, address: Address) -> None:
    models.load("m", address=address)


def follow(*, address: Address) -> None:
    runs.follow("r1", address=address)


def cancel_last(*, address: Address) -> None:
    runs.cancel("last", address=address)


@pytest.mark.parametrize(
    ("command", "request_", "body"),
    [
        (models.list_, FITS, '{"data": null}'),
        (models.list_, FITS, '{"data": ["m"]}'),
        (models.list_, FITS, '{"data": [{"object": "model"}]}'),
        (models.list_, FITS, '{"data": [{"id": "m", "size_bytes": "large"}]}'),
        (runs.list_, RUNS, '{"data": null}'),
        (runs.list_, RUNS, '{"data": [{"id": "r1"}]}'),
        (cancel_last, NEWEST, '{"data": [{}]}'),
        (load, LOAD, "data: hello\n\n"),
        (load, LOAD, "data: {}\n\n"),
        (load, LOAD, 'data: {"stage": "x", "progress": "much"}\n\n'),
        (follow, EVENTS, 'data: {"usage": "x", "choices": []}\n\n'),
    ],
)
def test_json_of_another_kind_is_told_in_one_line(
    command: Callable[..., None], request_: str, body: str
) -> None:
    """It is no server of such a kind; the exit status is 1."""
    kind = SSE if body.startswith("data") else JSON
    with serving({request_: (200, kind, body)}) as url, pytest.raises(SystemExit) as exit_:
        command(address=Address(url=url))

    told = str(exit_.value.code)
    assert told.startswith("streamwell: this does not look like an OpenAI-compatible server: ")
    assert told.endswith("of another kind")
    assert "\n" not in told


def test_what_another_server_does_not_say_is_blank(capsys: pytest.CaptureFixture[str]) -> None:
    """A card has an id; the rest is ours."""
    with serving({FITS: (200, JSON, '{"data": [{"id": "m", "family": 5}]}')}) as url:
        models.list_(address=Address(url=url))

    assert ["m", "5"] == capsys.readouterr().out.splitlines()[3].replace("│", "").split()


@pytest.mark.parametrize("command", [runs.follow, runs.cancel])
def test_an_empty_id_is_refused(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not the list of all runs."""
    with serving({}) as url, pytest.raises((InvalidRequest, SystemExit)) as error:
        command("", address=Address(url=url))

    assert "the id of a run is empty" in str(error.value) + capsys.readouterr().err


def test_runs_after_one_that_cannot_be_cancelled_are_cancelled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each has a line, and the exit status tells that not all were."""
    answers: Answers = {
        "POST /v1/runs/r1/cancel": (404, JSON, '{"error": {"message": "no such run"}}'),
        "POST /v1/runs/r2/cancel": (200, JSON, '{"id": "r2", "status": "cancelled"}'),
    }
    with serving(answers) as url, pytest.raises(SystemExit) as exit_:
        runs.cancel("r1", "r2", address=Address(url=url))

    assert 2 == exit_.value.code
    assert ("r2 cancelled\n", "streamwell: 'r1': no such run\n") == capsys.readouterr()


def test_run_ends_the_line_of_an_answer_that_breaks_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came is there, and why it is not more is told in a line of its own."""
    monkeypatch.setattr("sys.stdin", None)
    answers = OURS | {CHAT: (200, SSE, HELLO)}
    with serving(answers) as url, pytest.raises(SystemExit, match="the answer broke off: "):
        run(Address(url=url), "Hello!", "", {})

    assert "Hel\n" == capsys.readouterr().out
