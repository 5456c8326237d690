"""Text in, parts of the answer out: the filter behind the stop strings.

Rules. All that is pushed comes out, but for marks, and for white space at the rim of a part: what
cannot be read as a call of a tool is content, marks included. A call comes out whole when its
region ends. The parts, joined, do not depend on how the text is cut into pieces; so a replay of a
run's ids goes on where the run was. Work is linear in the text: no pattern is ever run on it.

Theory of operation. An answer is in one region at a time, in the content or in what a mark has
begun; only the marks that matter there are looked for. A tail that may become a mark is held, and
so is white space until more of the same kind follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from streamwell.core.json_values import json_of, parse_json
from streamwell.core.messages import AnswerPart, PartKind
from streamwell.text.response_template import Region, ResponseTemplate, fill_in

#: What OpenAI's API lets a function be called.
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: Characters that are looked through at once: each mark is looked for behind every other.
_MAX_PIECE = 256


class ResponseParser:
    """Splits one answer into content, reasoning and calls of tools."""

    def __init__(
        self, template: ResponseTemplate, kinds: Sequence[PartKind], begun: str = ""
    ) -> None:
        """Only regions of these `kinds` are told apart from content; `begun` is in the prompt."""
        self._content = Region(PartKind.CONTENT, (), ())
        self._regions = [region for region in template.regions if region.kind in kinds]
        for region in template.regions:
            if region.kind is PartKind.CONTENT:
                self._content = region
        self._region = self._content
        self._watch()
        self._held = ""
        #: What a call has so far, from its mark on.
        self._call: list[str] = []
        self._parts: list[AnswerPart] = []
        self._gaps = {PartKind.CONTENT: "", PartKind.REASONING: ""}
        self._has_begun: set[PartKind] = set()
        self.num_calls = 0
        self._take(begun, is_end=True)
        self._parts, self._held, self.num_calls = [], "", 0
        self._gaps = dict.fromkeys(self._gaps, "")
        self._has_begun.clear()

    @property
    def is_reasoning(self) -> bool:
        return self._region.kind is PartKind.REASONING

    def push(self, text: str) -> list[AnswerPart]:
        """Take more text; returns the parts that are certain now."""
        for at in range(0, len(text), _MAX_PIECE):
            self._take(self._held + text[at : at + _MAX_PIECE], is_end=False)
        parts, self._parts = self._parts, []
        return parts

    def flush(self) -> list[AnswerPart]:
        """What was held back; ends the answer."""
        self._take(self._held, is_end=True)
        if self._region.kind is PartKind.TOOL_CALL:
            self._end_call("")  # what is none is content again
        if self._region.kind in self._has_begun and not self.num_calls:
            self._emit(self._region.kind, self._gaps[self._region.kind])
        parts, self._parts = self._parts, []
        return parts

    def _take(self, text: str, *, is_end: bool) -> None:
        while True:
            held_from = len(text) if is_end else self._held_from(text)
            found = [(at, -len(m), m) for m in self._marks if (at := text.find(m)) >= 0]
            at, _, mark = min(found, default=(held_from, 0, ""))
            if at >= held_from:
                break
            self._add(text[:at])
            self._pass(mark)
            text = text[at + len(mark) :]
        self._add(text[:held_from])
        self._held = text[held_from:]

    def _held_from(self, text: str) -> int:
        """Where the longest tail begins that more text may turn into a mark."""
        for at in range(max(0, len(text) - self._max_tail), len(text)):
            if text[at] in self._first:
                tail = text[at:]
                if any(mark.startswith(tail) and mark != tail for mark in self._marks):
                    return at
        return len(text)

    def _add(self, text: str) -> None:
        """More of the region that the answer is in."""
        kind = self._region.kind
        if kind is PartKind.TOOL_CALL:
            self._call.append(text)
            return
        text = self._gaps[kind] + text
        if kind not in self._has_begun:
            text = text.lstrip()
        shown = text.rstrip()
        self._gaps[kind] = text[len(shown) :]
        if shown:
            self._has_begun.add(kind)
        self._emit(kind, shown)

    def _pass(self, mark: str) -> None:
        """A mark: the answer enters a region, or leaves one."""
        if self._region is self._content:
            entered = (region for region in self._regions if mark in region.opens)
            self._region = next(entered, self._content)
            self._call = [mark]
        else:
            if self._region.kind is PartKind.TOOL_CALL:
                self._end_call(mark)
            self._region = self._content
        self._watch()

    def _watch(self) -> None:
        """Look for the marks that matter where the answer is."""
        self._marks = self._region.closes
        if self._region is self._content:
            opens = (mark for region in self._regions for mark in region.opens)
            self._marks = (*self._content.opens, *self._content.closes, *opens)
        self._first = {mark[0] for mark in self._marks}
        self._max_tail = max(map(len, self._marks), default=1) - 1

    def _end_call(self, mark: str) -> None:
        self._call.append(mark)
        raw = "".join(self._call)
        body = raw[len(self._call[0]) : len(raw) - len(mark)]
        try:
            calls = _calls_in(body, self._region)
        except (ValueError, LookupError):
            self._region = self._content
            self._add(raw)
            return
        for name, arguments in calls:
            self._parts.append(AnswerPart(PartKind.TOOL_CALL, arguments, name, self.num_calls))
            self.num_calls += 1

    def _emit(self, kind: PartKind, text: str) -> None:
        if text:
            self._parts.append(AnswerPart(kind, text))


def joined(parts: Iterable[AnswerPart]) -> tuple[AnswerPart, ...]:
    """The same parts with texts of one kind in a row made one."""
    result: list[AnswerPart] = []
    for kind, group in groupby(parts, key=lambda part: part.kind):
        if kind is PartKind.TOOL_CALL:
            result += group
        else:
            result.append(AnswerPart(kind, "".join(part.text for part in group)))
    return tuple(result)


def _calls_in(body: str, region: Region) -> list[tuple[str, str]]:
    """Name and arguments of each call in the text of a region.

    Raises:
        ValueError, LookupError: it says no call.
    """
    if region.divider:
        head, _, arguments = body.partition(region.divider)
        name, *rest = head.replace("<", " <").replace(">", "> ").split() or [""]
        if not head.startswith(name) or not set(rest) <= set(region.fillers):
            raise ValueError("no name, or more than that")
        return [_call({"name": name, "arguments": arguments})]
    value = parse_json(body)
    if region.transform_each:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ValueError("no list of calls")
        value = [fill_in(region.transform, item) for item in value]
    elif region.transform is not None:
        value = fill_in(region.transform, {"content": value})
    calls = [_call(item) for item in (value if isinstance(value, list) else [value])]
    if not calls:
        raise ValueError("no call")
    return calls


def _call(value: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict):
        raise ValueError("no function")  # noqa: TRY004 - all of these are one error
    name, arguments = function.get("name"), function.get("arguments", {})
    if isinstance(arguments, str):
        arguments = parse_json(arguments)
    is_named = isinstance(name, str) and FUNCTION_NAME.fullmatch(name)
    if not is_named or not isinstance(arguments, dict):
        raise ValueError("no name, or no arguments")
    return str(name), json_of(arguments)
