"""Ids of frames: what is written is understood again, and nothing else is."""

from __future__ import annotations

import pytest

from streamwell.core.errors import InvalidRequest
from streamwell.server.cursor import (
    Cursor,
    frame_id,
    parse_event_id,
    parse_starting_after,
    run_of,
)


@pytest.mark.parametrize(
    ("seq", "part", "num_parts", "text", "cursor"),
    [
        (0, 0, 1, "run-1:0", Cursor(0)),
        (7, 0, 1, "run-1:7", Cursor(7)),
        (7, 0, 3, "run-1:7.0", Cursor(6, skip=1)),
        (7, 1, 3, "run-1:7.1", Cursor(6, skip=2)),
        (7, 2, 3, "run-1:7", Cursor(7)),
        (0, 0, 4, "run-1:0.0", Cursor(-1, skip=1)),
        (7, 4095, 4097, "run-1:7.4095", Cursor(6, skip=4096)),
    ],
)
def test_an_id_is_a_place(seq: int, part: int, num_parts: int, text: str, cursor: Cursor) -> None:
    """After the last frame of an event comes the next event; after another, its next frame."""
    assert text == frame_id("run-1", seq, part, num_parts)
    assert cursor == parse_event_id(text, "run-1")
    assert "run-1" == run_of(text)


BAD_IDS = ["", ":", "run-1", "run-1:", "run-1:x", "run-1:-1", ":1", "run-1:1.", "run-1:1.x"]
WORSE_IDS = [
    "run-1:99999999999",
    "run-1:١",
    "run 1:1",
    "run-1:1\n",
    "x" * 81 + ":1",
    "run-1:1.100000",
]


@pytest.mark.parametrize("event_id", [*BAD_IDS, *WORSE_IDS, "x" * 81 + ":1"])
def test_what_is_no_id_is_refused(event_id: str) -> None:
    """With the name of the header that it came in."""
    for parse in (run_of, lambda text: parse_event_id(text, "run-1")):
        with pytest.raises(InvalidRequest) as refusal:
            parse(event_id)
        assert "Last-Event-ID" == refusal.value.param


def test_another_runs_id_is_refused() -> None:
    """A place in one run says nothing of another."""
    with pytest.raises(InvalidRequest):
        parse_event_id("run-2:1", "run-1")


def test_starting_after_is_a_number() -> None:
    """-1 is the beginning."""
    assert [Cursor(-1), Cursor(0), Cursor(12)] == [*map(parse_starting_after, ("-1", "0", "12"))]
    for text in ("", "-2", "1.5", "x", "+1", " 1", "1" * 11, "٣"):
        with pytest.raises(InvalidRequest) as refusal:
            parse_starting_after(text)
        assert "starting_after" == refusal.value.param
