"""Server-sent events out of the bytes of a response. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FIELDS = (b"id", b"event", b"data")


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event."""

    id: str
    name: str
    data: str


class EventParser:
    """Takes bytes as they come; a comment, or an event without data, is none.

    Lines end with a line feed, perhaps after a carriage return. The specification also knows
    carriage returns alone, which no server sends and which are not taken. Libraries that part text
    into lines do so at U+2028 too, which JSON may hold as it is.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}
        #: What the first line may begin with.
        self._byte_order_mark = codecs.BOM_UTF8

    def push(self, chunk: bytes) -> list[Frame]:
        """The events that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [frame for line in lines if (frame := self._take(line.removesuffix(b"\r")))]

    def _take(self, line: bytes) -> Frame | None:
        line, self._byte_order_mark = line.removeprefix(self._byte_order_mark), b""
        if line:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data" and field in self._fields:
                value = self._fields[field] + b"\n" + value
            self._fields[field] = value
            return None
        fields, self._fields = self._fields, {}
        if b"data" not in fields:
            return None
        texts = (fields.get(name, b"").decode("utf-8", "replace") for name in _FIELDS)
        return Frame(*texts)


def frames_of(chunks: Iterable[bytes]) -> Iterator[Frame]:
    """The events of a response, as its bytes come."""
    parser = EventParser()
    for chunk in chunks:
        yield from parser.push(chunk)
