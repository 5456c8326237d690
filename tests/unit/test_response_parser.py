"""The parts of an answer: as Transformers' parser tells them, however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing import parse_response

from streamwell.core.messages import AnswerPart, PartKind
from streamwell.text.response_parser import ResponseParser, joined
from streamwell.text.response_template import (
    ResponseTemplate,
    UnsupportedTemplate,
    parse_response_template,
)

CONTENT, REASONING, CALL = PartKind.CONTENT, PartKind.REASONING, PartKind.TOOL_CALL
BOTH = (REASONING, CALL)
ANCHOR = "<|im_start|>assistant\n"
TOOL_CALLS: dict[str, Any] = {
    "open": "<tool_call>",
    "close": "</tool_call>",
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": "{content}"},
}
FIELDS: dict[str, Any] = {
    "content": {"close": "<|im_end|>"},
    "reasoning_content": {"open": "<think>", "close": "</think>"},
    "tool_calls": TOOL_CALLS,
}
PLAIN = {"start_anchor": ANCHOR, "fields": FIELDS}
#: The same with space around the marks, as templates of real models have it.
SPACED = {
    "start_anchor": ["<|user|>", ANCHOR],
    "fields": FIELDS
    | {
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)"},
        "tool_calls": {k: v for k, v in TOOL_CALLS.items() if k != "open"}
        | {"open_pattern": r"\s*<tool_call>"},
    },
}
NAMED = PLAIN | {
    "fields": FIELDS
    | {
        "tool_calls": TOOL_CALLS
        | {"transform": {"function": {"name": "{content.tool}", "arguments": "{content.with}"}}}
    }
}
LISTED = PLAIN | {
    "fields": FIELDS
    | {
        "tool_calls": {"open": "[CALLS]", "content": "json", "transform_each": True}
        | {"transform": {"function": {"name": "{name}", "arguments": "{arguments}"}}}
    }
}


def parts_of(
    source: dict[str, Any],
    text: str,
    begun: str = "",
    size: int = 10**6,
    kinds: tuple[PartKind, ...] = BOTH,
) -> tuple[AnswerPart, ...]:
    """The joined parts of a text that comes in pieces of this size."""
    parser = ResponseParser(parse_response_template(source), kinds, begun)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return joined([part for piece in pieces for part in parser.push(piece)] + parser.flush())


def as_message(parts: tuple[AnswerPart, ...]) -> dict[str, Any]:
    """The parts as Transformers shows them."""
    message: dict[str, Any] = {}
    for part in parts:
        if part.kind is CALL:
            function = {"name": part.name, "arguments": json.loads(part.text)}
            message.setdefault("tool_calls", []).append(function)
        else:
            name = "content" if part.kind is CONTENT else "reasoning_content"
            message[name] = message.get(name, "") + part.text
    return {k: v.strip() if isinstance(v, str) else v for k, v in message.items()}


def of_transformers(source: dict[str, Any], text: str, begun: str) -> dict[str, Any]:
    message = parse_response(text, source, prefix=ANCHOR + begun)
    calls = message.pop("tool_calls", [])
    calls = calls if isinstance(calls, list) else [calls]
    functions = [call["function"] for call in calls]
    return message | ({"tool_calls": functions} if functions else {})


CALL_A = '{"name": "a", "arguments": {"x": [1, "é", null]}}'
CALL_B = '{"name": "b", "arguments": {}}'
AGREED = [
    (PLAIN, "Hello.", ""),
    (PLAIN, "  Hello there. \n", ""),
    (PLAIN, "a < b <thin and </think> c", ""),
    (PLAIN, "<think>\nHm.\n</think>\n\nHello.<|im_end|>", ""),
    (PLAIN, "Hm. <tool_call>", "<think>"),
    (PLAIN, "Hm.</think>Yes.", "<think>\n"),
    (PLAIN, "Yes.", "<think>\n\n</think>\n\n"),
    (PLAIN, f"I look.<tool_call>{CALL_A}</tool_call><tool_call>\n{CALL_B}\n</tool_call>", ""),
    (PLAIN, f"<tool_call>{CALL_A}", ""),
    (SPACED, f"I look.\n<tool_call>\n{CALL_A}\n</tool_call>\n<tool_call>{CALL_B}</tool_call>", ""),
    (SPACED, "Yes.\n\n<|endoftext|>", ""),
    (NAMED, '<tool_call>{"tool": "a", "with": {"y": 1}}</tool_call>', ""),
    (LISTED, f"Well. [CALLS][{CALL_A}, {CALL_B}]", ""),
]


@pytest.mark.parametrize(("source", "text", "begun"), AGREED)
@pytest.mark.parametrize("size", [1, 3, 10**6])
def test_parts_are_those_of_transformers(
    source: dict[str, Any], text: str, begun: str, size: int
) -> None:
    """Content, reasoning and calls, but for white space at the rims."""
    assert of_transformers(source, text, begun) == as_message(parts_of(source, text, begun, size))


MALFORMED = [
    "",
    "{",
    "[]",
    "7",
    '{"arguments": {}}',
    '{"name": "two words"}',
    '{"name": "f", "arguments": 7}',
    '{"name": "f", "arguments": "["}',
    '{"name": "f", "arguments": {"x": NaN}}',
    '{"name": "f", "arguments": {"x": 1e999}}',
    '{"name": "f", "arguments": {"x": "\\ud800"}}',
    '{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}",
    '{"name": "f", "arguments": {"x": ' + "[" * 70 + "]" * 70 + "}}",
    "[" * 100_000,
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("close", ["</tool_call>", ""])
def test_what_is_no_call_is_content(body: str, close: str) -> None:
    """As the model wrote it, with its marks; what follows is told apart as before."""
    raw = f"<tool_call>{body}{close}"
    rest = f"<tool_call>{CALL_B}</tool_call>" if close else ""
    *texts, last = parts_of(PLAIN, f"a {raw}{rest}", size=1000)
    if rest:
        assert AnswerPart(CALL, "{}", "b", 0) == last
    assert [f"a {raw}"] == [part.text for part in texts or [last]]


@pytest.mark.parametrize("raw", ["<tool_call>\n", '<tool_call>\n{"name": "f",\n  '])
def test_a_call_that_is_cut_off_is_content_to_its_last_space(raw: str) -> None:
    """Nothing is lost."""
    assert (AnswerPart(CONTENT, raw),) == parts_of(PLAIN, raw, size=1000)


@pytest.mark.parametrize("body", ["5", "null", "true", "{}", f'[{CALL_A}, "note"]', "[[]]"])
def test_what_is_no_list_of_calls_is_content(body: str) -> None:
    """Where a model lists its calls, nothing that it lists is left out."""
    text = f"Well. [CALLS]{body}"

    assert (AnswerPart(CONTENT, text),) == parts_of(LISTED, text)


def test_only_what_is_asked_for_is_told_apart() -> None:
    """Without tools, a call is text; so are fields that no answer has."""
    text = f"<think>x</think><tool_call>{CALL_A}</tool_call>"
    assert (AnswerPart(CONTENT, text),) == parts_of(PLAIN, text, kinds=())
    others = PLAIN | {"fields": {"content": {}, "mood": {"open": "<mood>", "close": "</mood>"}}}
    assert (AnswerPart(CONTENT, "<mood>x</mood>"),) == parts_of(others, "<mood>x</mood>")


PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL_A, CALL_B, "{", "<", "<to"]
PIECES += ["<|im_end|>", " ", "\n", "a", "é b", "</", ">"]


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    begun=st.sampled_from(["", "<think>"]),
)
def test_cuts_change_nothing(pieces: list[str], cuts: list[int], begun: str) -> None:
    """However a text is cut, its parts are the same, and no character but space is lost."""
    text = "".join(pieces)
    parser = ResponseParser(parse_response_template(PLAIN), BOTH, begun)
    parts, at, turn = [], 0, 0
    while at < len(text):
        size = cuts[turn % len(cuts)]
        parts += parser.push(text[at : at + size])
        at, turn = at + size, turn + 1
    assert parts_of(PLAIN, text, begun) == joined([*parts, *parser.flush()])

    shown = "".join(part.text for part in parts_of(PLAIN, text, begun, kinds=()))
    assert "".join(text.replace("<|im_end|>", "").split()) == "".join(shown.split())


def test_where_an_answer_has_begun() -> None:
    """After the last anchor of a prompt; without any, nowhere."""
    template = parse_response_template(SPACED)
    assert "<think>" == template.answer_begun_in(f"{ANCHOR}a<|user|>b{ANCHOR}<think>")
    assert "c" == template.answer_begun_in(f"{ANCHOR}a<|user|>c")
    assert "" == template.answer_begun_in("<think>")


CATASTROPHE = r"(a+)+$"
REFUSED: list[tuple[Any, str]] = [
    (7, "no object"),
    ({}, "fields"),
    (PLAIN | {"version": 2}, "version"),
    ({"fields": FIELDS}, "start_anchor"),
    (PLAIN | {"start_anchor": ""}, "empty"),
    (PLAIN | {"start_anchor": ["x"] * 17}, "too many"),
    (PLAIN | {"start_anchor": "x" * 129}, "too long"),
    (PLAIN | {"fields": {"content": 7}}, "no object"),
    (PLAIN | {"fields": {"reasoning_content": {}}}, "begins"),
    (PLAIN | {"fields": {"reasoning_content": {"open": 7}}}, "text"),
    (PLAIN | {"fields": {"content": {"content": "int"}}}, "read"),
    (PLAIN | {"fields": {"tool_calls": {"open": "<", "content": "xml-inline"}}}, "read"),
    (PLAIN | {"fields": {"tool_calls": TOOL_CALLS | {"content_args": {"a": 1}}}}, "read"),
    (PLAIN | {"fields": {"tool_calls": TOOL_CALLS | {"transform": "{name}"}}}, "{name}"),
    (PLAIN | {"fields": {"tool_calls": TOOL_CALLS | {"transform": ["{content}"] * 99}}}, "long"),
    *(
        (PLAIN | {"fields": {"content": {"close_pattern": pattern}}}, "pattern")
        for pattern in (CATASTROPHE, r"(?P<x>\w+)", "a.b", "[", "a|b)*", r"\w", 7, "x" * 5000)
    ),
]


@pytest.mark.parametrize(("source", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_could_do_harm_is_not_served(source: object, reason: str) -> None:
    """Only marks that are found in linear time, and only what is as Transformers has it."""
    with pytest.raises(UnsupportedTemplate, match=reason):
        parse_response_template(source)


def test_marks_that_no_text_shows_are_refused() -> None:
    """Special tokens are left out by decoding; the end of a turn may be one."""
    assert isinstance(parse_response_template(PLAIN, unseen={"<|im_end|>"}), ResponseTemplate)
    with pytest.raises(UnsupportedTemplate, match="<think>"):
        parse_response_template(PLAIN, unseen={"<think>"})


@pytest.mark.parametrize(("source", "text", "begun"), AGREED)
def test_no_part_of_a_text_is_empty(source: dict[str, Any], text: str, begun: str) -> None:
    """Whoever follows a stream gets no frame that says nothing."""
    parts = parts_of(source, text, begun, size=1)

    assert all(part.text for part in parts)
