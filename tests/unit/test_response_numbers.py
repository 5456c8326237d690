"""Sequence numbers of the Responses API: where a frame's number leads back to, purely."""

from __future__ import annotations

import pytest

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import EventKind, FinishReason, RunEvent
from streamwell.server.convert.response_stream import first_number, place_after


def _log(num_deltas: int) -> list[RunEvent]:
    """The events of a run that has ended."""
    kinds = [EventKind.START, *[EventKind.DELTA] * num_deltas, EventKind.FINISH, EventKind.END]
    return [
        RunEvent(
            run_id="resp_1",
            seq=seq,
            kind=kind,
            finish_reason=FinishReason.STOP if kind is EventKind.FINISH else None,
        )
        for seq, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize("num_deltas", [0, 1, 5])
def test_every_number_leads_to_one_place(num_deltas: int) -> None:
    """After k frames comes frame k: counted frame by frame, whatever the event has of them."""
    events = _log(num_deltas)
    num_frames = [4, *[1] * num_deltas, 3, 1]
    frames = [(seq, part) for seq, count in enumerate(num_frames) for part in range(count)]

    for number, (seq, part) in enumerate(frames):
        is_last = part == num_frames[seq] - 1
        assert ((seq, 0) if is_last else (seq - 1, part + 1)) == place_after(number, events)
        assert number - part == first_number(events[seq])
    assert (-1, 0) == place_after(-1, events)


@pytest.mark.parametrize("num_shown", range(8))
def test_a_frame_that_has_not_been_shown_has_no_place(num_shown: int) -> None:
    """Of a run that is generated, only what is in the log can have been seen."""
    events = _log(5)[:num_shown]
    num_frames = sum({EventKind.START: 4, EventKind.FINISH: 3}.get(e.kind, 1) for e in events)

    assert (num_shown - 1, 0) == place_after(num_frames - 1, events)
    for number in (num_frames, num_frames + 1, 10**9, -2):
        with pytest.raises(InvalidRequest, match=f"event {number} "):
            place_after(number, events)
