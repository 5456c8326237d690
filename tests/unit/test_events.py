"""Server-sent events as the command line reads them."""

from __future__ import annotations

import codecs

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


def frames_of_pieces(stream: bytes, size: int) -> list[Frame]:
    parser = EventParser()
    pieces = (stream[at : at + size] for at in range(0, len(stream), size))
    return [frame for piece in pieces for frame in parser.push(piece)]


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_events_are_cut_anywhere(size: int) -> None:
    """The same events however their bytes come; a line ends nowhere but at a line feed."""
    assert FRAMES == frames_of_pieces(STREAM, size)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_byte_order_mark_is_no_part_of_the_first_line(size: int) -> None:
    """Elsewhere it is text like any other."""
    mark = codecs.BOM_UTF8

    frames = frames_of_pieces(mark + b"data: a" + mark + b"\n\n" + mark + b"data: b\n\n", size)

    assert [Frame("", "", "a\ufeff")] == frames
