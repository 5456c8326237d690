"""Server-sent events as the command line reads them."""

from __future__ import annotations

import pytest

from streamwell.cli.events import EventParser, Frame

STREAM = (
    b': ping\n\nid: r:1\r\nevent: token\r\ndata: {"a": "\xe2\x80\xa8\xc2\x85"}\r\n\r\n'
    b"data: b\ndata: c\n\nid: r:2\n\ndata\n\ndata: cut"
)
FRAMES = [
    Frame("r:1", "token", '{"a": "\u2028\x85"}'),
    Frame("", "", "b\nc"),
    Frame("", "", ""),
]


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_events_are_cut_anywhere(size: int) -> None:
    """The same events however their bytes come; a line ends nowhere but at a line feed."""
    parser = EventParser()
    chunks = (STREAM[at : at + size] for at in range(0, len(STREAM), size))

    assert FRAMES == [frame for chunk in chunks for frame in parser.push(chunk)]
