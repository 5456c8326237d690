"""Where a reader of a run stands: the ids of server-sent events, and how to go on after one.

An id is `<run>:<seq>`. An event of the log that makes several frames has ids `<run>:<seq>.<part>`
on all but the last of them, so that a cut between two of them loses and repeats nothing either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from streamwell.core.errors import InvalidRequest

_ID = re.compile(r"([A-Za-z0-9_-]{1,80}):([0-9]{1,10})(?:\.([0-9]{1,5}))?", re.ASCII)
#: What an `EventSource` sends by itself.
_HEADER = "Last-Event-ID"
_SEQ = re.compile(r"-1|[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """After the event `after_seq`, and after the first `skip` frames of the next one."""

    after_seq: int = -1
    skip: int = 0
    #: The field of a request that says so; another may say the same.
    source: str = field(default="starting_after", compare=False)


def frame_id(run_id: str, seq: int, part: int, num_parts: int) -> str:
    """The id of one frame of an event."""
    return f"{run_id}:{seq}" if part == num_parts - 1 else f"{run_id}:{seq}.{part}"


def run_of(event_id: str) -> str:
    """The run that an event id names; raises `InvalidRequest` for what is none."""
    return _match(event_id)[1]


def parse_event_id(event_id: str, run_id: str) -> Cursor:
    """The place after the frame of this id.

    Raises:
        InvalidRequest: it is no event id, or that of another run.
    """
    match = _match(event_id)
    if match[1] != run_id:
        raise InvalidRequest("the event id belongs to another run", _HEADER)
    seq, part = int(match[2]), match[3]
    place = (seq, 0) if part is None else (seq - 1, int(part) + 1)
    return Cursor(*place, source=_HEADER)


def parse_starting_after(value: str) -> Cursor:
    """The place after the event of this number; -1 is the beginning.

    Raises:
        InvalidRequest: it is no such number.
    """
    if _SEQ.fullmatch(value) is None:
        raise InvalidRequest("must be the number of an event", "starting_after")
    return Cursor(int(value))


def _match(event_id: str) -> re.Match[str]:
    match = _ID.fullmatch(event_id)
    if match is None:
        raise InvalidRequest("is not the id of an event of this server", _HEADER)
    return match
