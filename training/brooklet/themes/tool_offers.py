"""The tools that a conversation is given: made from a verb and an object, or well known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from training.brooklet.exchange import is_held_out
from training.brooklet.text import with_article
from training.brooklet.themes.tool_results import Arguments, any_result
from training.brooklet.themes.tool_words import LOOKUPS, OBJECTS, SLOTS, Slot, Value, ascii_word

LOOKUP_QUESTIONS = ("What is the {n}{{}}?", "Tell me the {n}{{}}.", "What is the {n}{{}}?")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool; the phrase is how prompts say its value."""

    name: str
    slot: Slot
    phrase: str = ""
    description: str = ""
    required: bool = True

    @property
    def words(self) -> str:
        """The name as words."""
        return "query" if self.name == "q" else self.name.replace("_", " ")

    def schema(self) -> dict[str, Any]:
        """The parameter's JSON schema."""
        entry: dict[str, Any] = {"type": self.slot.type}
        if self.description:
            entry["description"] = self.description
        if self.slot.options:
            entry["enum"] = list(self.slot.options)
        return entry

    def said(self, value: Value) -> str:
        """How a prompt says a value."""
        phrase = self.slot.phrases[value] if isinstance(value, bool) else self.phrase
        return phrase.format(n=self.words, v=value)


@dataclass(frozen=True)
class Tool:
    """A tool that the assistant may call, with what prompts need to ask for it.

    The request and the questions hold `{}` where the phrases of the arguments go, or the name of a
    parameter in braces. The key names what may be held out; where it is empty, the arguments do.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    request: str
    questions: tuple[str, ...] = ()
    key: str = ""
    result: Callable[[Random, Arguments], str] = any_result

    @property
    def required(self) -> tuple[Parameter, ...]:
        """The parameters that every call gives."""
        return tuple(parameter for parameter in self.parameters if parameter.required)

    def schema(self) -> dict[str, Any]:
        """The entry of a request's `tools`."""
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {parameter.name: parameter.schema() for parameter in self.parameters},
        }
        if self.required:
            parameters["required"] = [parameter.name for parameter in self.required]
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


def cased(rng: Random, text: str) -> str:
    """Write words as the name of a tool, most often in snake case."""
    parts = text.split()
    if rng.random() < 0.15:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "_".join(parts)


def draw_parameter(rng: Random, slot: Slot, *, required: bool = True) -> Parameter:
    """Give a parameter one of its names, and perhaps a description."""
    name = rng.choice(slot.names)
    form = rng.choice(("", "The {n}.", "The {n}", "Name of the {n}", "The {n} to use"))
    if slot.type == "boolean":
        form = rng.choice(("", "Whether it is {n}"))
    elif name == "name":
        form = "The name"
    if slot.descriptions:
        form = rng.choice(slot.descriptions)
    phrase = rng.choice(slot.phrases) if slot.phrases else ""
    return Parameter(name, slot, phrase, form.format(n=name.replace("_", " ")), required)


def _draw_parameters(rng: Random) -> list[Parameter]:
    """Draw up to three parameters, no two of them said alike, the required ones first."""
    parameters: list[Parameter] = []
    taken: set[str] = set()
    for slot in rng.sample(SLOTS, rng.choice((0, 1, 1, 1, 2, 2, 3))):
        is_flag = slot.type == "boolean"
        required = not is_flag and rng.random() < 0.75
        parameter = draw_parameter(rng, slot, required=required)
        marks = {parameter.name, "flag"} if is_flag else {parameter.name, *slot.phrases}
        if not marks & taken:
            taken |= marks
            parameters.append(parameter)
    return sorted(parameters, key=lambda parameter: not parameter.required)


def pair_tool(rng: Random, verb: str, noun: str) -> Tool:
    """Make the tool that does one thing to one kind of object."""
    form = rng.choice(("{}.", "{}", "{}.", "use this to {}.", "a tool to {}."))
    description = form.format(f"{verb} {with_article(noun)}")
    thing = with_article(noun) if rng.random() < 0.5 else f"the {noun}"
    questions = tuple(form.format(n=noun) for form in LOOKUP_QUESTIONS)
    return Tool(
        cased(rng, f"{verb} {noun}"),
        description[0].upper() + description[1:],
        tuple(_draw_parameters(rng)),
        f"{verb} {thing}{{}}",
        questions if verb in LOOKUPS else (),
        key=f"tool {verb} {noun}",
    )


def draw_pair(
    rng: Random, verbs: list[str], nouns: Sequence[str] = (), *, held_out: bool = False
) -> tuple[str, str]:
    """Draw a verb and an object from one side of the split; some objects are made up.

    Where objects are given, one of them is drawn now and then.
    """
    while True:
        verb = rng.choice(verbs)
        if nouns and rng.random() < 0.3:
            noun = rng.choice(nouns)
        else:
            noun = ascii_word(rng) if rng.random() < 0.3 else rng.choice(OBJECTS)
        if is_held_out(f"tool {verb} {noun}") == held_out:
            return verb, noun
