"""How the parts of an answer are told apart: the `response_template` of a model folder.

The format is Transformers', see `transformers/utils/chat_parsing`. A folder is hostile input, and
what parses answers runs in the event loop, so only what takes linear time is served (decision
0027): marks are texts, or patterns that say no more than texts with space around them, and calls
of tools are JSON. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from streamwell.core.messages import PartKind

MAX_MARKS = 16
MAX_MARK_CHARS = 128
#: It bounds how often a transform repeats what a model wrote, and how deep it is.
MAX_TRANSFORM_CHARS = 1024

#: The fields of an answer; those of any other name are left in the text.
_KINDS = {
    "content": PartKind.CONTENT,
    "reasoning_content": PartKind.REASONING,
    "reasoning": PartKind.REASONING,
    "thinking": PartKind.REASONING,
    "tool_calls": PartKind.TOOL_CALL,
}
_PARSERS = {PartKind.CONTENT: "text", PartKind.REASONING: "text", PartKind.TOOL_CALL: "json"}
#: A pattern that is one text or a choice of them, with space around.
_SPACED = re.compile(r"(?:\\s[*+])?(?:\(\?:(?P<choice>.*)\)|(?P<text>.*?))(?:\\s[*+])?", re.DOTALL)
_CHARACTER = re.compile(r"\\([^\w\s])|([^\\.^$*+?{}\[\]()|])", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


class UnsupportedTemplate(ValueError):
    """The response template asks for what is not served, or is none."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of an answer between two marks."""

    kind: PartKind
    #: Texts that begin it; none of what stands outside all others, the content.
    opens: tuple[str, ...]
    #: Texts that end it.
    closes: tuple[str, ...]
    #: What becomes of the JSON of a call: a value with placeholders; `None` takes it as it is.
    transform: Any = None
    #: The JSON is a list, and each entry is transformed.
    transform_each: bool = False
    #: If there is one, a call is the name of a function, this, and its arguments.
    divider: str = ""
    #: What may stand behind the name, and says nothing: words and marks.
    fillers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseTemplate:
    """The regions of an answer."""

    #: Texts after which an answer begins in a prompt; the last one counts.
    anchors: tuple[str, ...]
    regions: tuple[Region, ...]
    #: Special tokens that texts show, since marks are made of them.
    shown: tuple[str, ...] = ()

    def answer_begun_in(self, prompt: str) -> str:
        """What the prompt has of the answer already, such as a mark that begins reasoning."""
        ends = [at + len(a) for a in self.anchors if (at := prompt.rfind(a)) >= 0]
        return prompt[max(ends) :] if ends else ""


def parse_response_template(source: object, unseen: Collection[str] = ()) -> ResponseTemplate:
    """A template as it stands in `tokenizer_config.json`; `unseen` are tokens that no text shows.

    Raises:
        UnsupportedTemplate: says what is wrong or not served.
    """
    template = _object(source, "response_template")
    if template.get("version", 1) != 1:
        raise UnsupportedTemplate("its version is not 1")
    fields = _object(template.get("fields"), "fields")
    known = {name: _object(fields[name], name) for name in _KINDS if name in fields}
    regions = tuple(_region(name, field) for name, field in known.items())
    for region in regions:
        if region.kind is not PartKind.CONTENT:
            _check_marks(region, unseen)
    anchors = _marks("response_template", template, "start_anchor")
    if not anchors:
        raise UnsupportedTemplate("there is no start_anchor")
    return ResponseTemplate(anchors, regions)


def _region(name: str, field: Mapping[str, Any]) -> Region:
    kind = _KINDS[name]
    if field.get("content", "text") != _PARSERS[kind] or field.get("content_args"):
        raise UnsupportedTemplate(f"{name} is not to be read as {_PARSERS[kind]}")
    transform, is_each = field.get("transform"), field.get("transform_each", False) is True
    if transform is not None:
        if len(json.dumps(transform)) > MAX_TRANSFORM_CHARS:
            raise UnsupportedTemplate(f"the transform of {name} is too long")
        _check_transform(transform, is_each=is_each)
    return Region(
        kind=kind,
        opens=_marks(name, field, "open"),
        closes=_marks(name, field, "close"),
        transform=transform,
        transform_each=is_each,
    )


def _check_marks(region: Region, unseen: Collection[str]) -> None:
    if not region.opens:
        raise UnsupportedTemplate("only content may be without a mark that begins it")
    if hidden := [mark for mark in region.opens + region.closes if mark in unseen]:
        raise UnsupportedTemplate(f"{hidden} are special tokens, which no text shows")


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnsupportedTemplate(f"{name} is no object")
    return value


def _marks(name: str, field: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = field.get(key, [])
    marks = [value] if isinstance(value, str) else value
    if (pattern := field.get(f"{key}_pattern")) is not None:
        marks = _texts_of(pattern)
    if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
        raise UnsupportedTemplate(f"{name}.{key} is neither a text nor a list of texts")
    if not all(0 < len(mark) <= MAX_MARK_CHARS for mark in marks) or len(marks) > MAX_MARKS:
        raise UnsupportedTemplate(f"{name}.{key} is empty, too long, or has too many texts")
    return tuple(marks)


def _texts_of(pattern: object) -> list[str]:
    """The texts that a pattern matches, space around them aside, which no part shows anyway."""
    if not isinstance(pattern, str) or len(pattern) > MAX_MARKS * MAX_MARK_CHARS:
        raise UnsupportedTemplate("a pattern is no text, or too long")
    match = _SPACED.fullmatch(pattern)
    source = "" if match is None else match["choice"] or match["text"] or ""
    texts, at = [""], 0
    while at < len(source):
        if source[at] == "|":
            texts.append("")
            at += 1
        elif character := _CHARACTER.match(source, at):
            texts[-1] += character[1] or character[2]
            at = character.end()
        else:
            raise UnsupportedTemplate(f"the pattern {pattern!r:.80} is more than a choice of texts")
    return texts


def _check_transform(transform: Any, *, is_each: bool) -> None:  # noqa: ANN401 - JSON
    """Raises `UnsupportedTemplate` for one that could never be filled in."""
    if isinstance(transform, dict | list):
        inner = transform.values() if isinstance(transform, dict) else transform
        for value in inner:
            _check_transform(value, is_each=is_each)
    match = _PLACEHOLDER.fullmatch(transform) if isinstance(transform, str) else None
    if match is not None and not is_each and match[1].partition(".")[0] != "content":
        raise UnsupportedTemplate(f"{transform} in a transform stands for nothing")


def fill_in(transform: Any, scope: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The transform with its placeholders, `{name}` or `{name.key}`, replaced.

    Raises:
        LookupError: there is no such value.
    """
    if isinstance(transform, dict):
        return {key: fill_in(value, scope) for key, value in transform.items()}
    if isinstance(transform, list):
        return [fill_in(value, scope) for value in transform]
    match = _PLACEHOLDER.fullmatch(transform) if isinstance(transform, str) else None
    if match is None:
        return transform
    value: Any = scope
    for key in match[1].split("."):
        if not isinstance(value, Mapping):
            raise LookupError(key)  # noqa: TRY004 - as for a key that is not there
        value = value[key]
    return value
