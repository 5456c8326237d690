"""Tools and JSON in the corpus: every call and every object is right for its prompt."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from training.brooklet.exchange import Exchange, Theme, ToolUse, draw, is_held_out
from training.brooklet.themes import structured
from training.brooklet.themes.tool_offers import Tool
from training.brooklet.themes.tool_results import joined, say
from training.brooklet.themes.tools import (
    NO_TOOL,
    ask_back,
    calculates,
    draw_tools,
    no_tool_fits,
    tool_turns,
    use_tool,
    use_two,
)

TYPES: dict[str, type] = {"string": str, "integer": int, "number": int, "boolean": bool}
JSON_THEMES = (
    structured.extract_json,
    structured.boolean_json,
    structured.list_json,
    structured.pairs_json,
    structured.table_json,
    structured.valley_json,
)


def talks(count: int = 300) -> list[tuple[tuple[Tool, ...], list[Exchange]]]:
    """Tools with exchanges about them, the same each time."""
    rng, found = Random(5), []
    for _ in range(count):
        tools = draw_tools(rng)
        exchanges = [use_tool(rng, tools), use_two(rng, tools), *ask_back(rng, tools)]
        found.append((tools, exchanges))
    return found


TALKS = talks()
USES = [(tools, exchange) for tools, exchanges in TALKS for exchange in exchanges if exchange.uses]


def drawn(theme: Theme) -> list[Exchange]:
    rng = Random(theme.__name__)
    return [draw(theme, rng, {}) for _ in range(300)]


def offered(tools: tuple[Tool, ...], use: ToolUse) -> Tool:
    return next(tool for tool in tools if tool.name == use.name)


def test_the_same_seed_offers_and_uses_the_same_tools() -> None:
    """Tools, prompts, calls and results depend on nothing else."""
    first, second = TALKS[:40], talks(40)

    assert [exchanges for _, exchanges in first] == [exchanges for _, exchanges in second]
    assert [tool.schema() for tools, _ in first for tool in tools] == [
        tool.schema() for tools, _ in second for tool in tools
    ]


def test_a_tool_is_offered_as_a_request_offers_it() -> None:
    """A function with a name that requests may use, and parameters as a JSON schema."""
    tools = [tool for tools, _ in TALKS for tool in tools]
    for tool in tools:
        schema = json.loads(json.dumps(tool.schema()))
        function = schema["function"]
        properties = function["parameters"]["properties"]

        assert "function" == schema["type"]
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", function["name"])
        assert {*function["parameters"].get("required", [])} <= {*properties}
        assert {entry["type"] for entry in properties.values()} <= {*TYPES}
        assert len(properties) == len(tool.parameters)


def test_a_conversation_has_up_to_five_tools_of_different_names() -> None:
    """And at least one, among them those that everybody tries."""
    names = [[tool.name for tool in tools] for tools, _ in TALKS]

    assert {1, 2, 3, 4, 5} == {len(offer) for offer in names}
    assert names == [list(dict.fromkeys(offer)) for offer in names]
    assert {"get_weather", "get_time", "add", "search", "calculator"} <= {
        name for offer in names for name in offer
    }


def test_arguments_follow_the_schema() -> None:
    """Each has its declared type and options, and none that is required is missing."""
    for tools, exchange in USES:
        for use in exchange.uses:
            parameters = {item.name: item for item in offered(tools, use).parameters}
            required = {item.name for item in parameters.values() if item.required}

            assert required <= {*use.arguments} <= {*parameters}
            for name, value in use.arguments.items():
                assert TYPES[parameters[name].slot.type] is type(value)
                assert value in (parameters[name].slot.options or (value,))


def test_arguments_are_in_the_prompt() -> None:
    """As they are typed; a boolean by its own phrase."""
    for tools, exchange in USES:
        for use in exchange.uses:
            slots = {item.name: item.slot for item in offered(tools, use).parameters}
            for name, value in use.arguments.items():
                said = slots[name].phrases[value] if isinstance(value, bool) else str(value)

                assert said.lower() in exchange.prompt.lower(), exchange


def test_a_prompt_is_meant_for_one_tool() -> None:
    """The request of a tool that is not used is not in the prompt."""
    for tools, exchange in USES:
        used = {use.name for use in exchange.uses}
        for tool in tools:
            if tool.name not in used and tool.key:
                words = re.findall(r"\w+", exchange.prompt.lower())
                *verb, noun = tool.key.removeprefix("tool ").split()

                assert not {*verb, noun} <= {*words}, (tool.name, exchange)


def test_two_calls_are_two() -> None:
    """They differ, and the reply states both results in turn."""
    twos = [exchange for _, exchange in USES if exchange.task == "two tool calls"]
    for exchange in twos:
        first, second = exchange.uses
        replies = [say(use.result, use.arguments) for use in exchange.uses]

        assert (first.name, first.arguments) != (second.name, second.arguments)
        assert " ".join(replies) == exchange.reply
    assert len(twos) > 100


def test_a_missing_argument_is_asked_for_and_then_used() -> None:
    """The reply names the parameter; what the next prompt gives is its value."""
    pairs = [exchanges[2:] for _, exchanges in TALKS if len(exchanges) == 4]
    for asked, answered in pairs:
        ((name, value),) = answered.uses[0].arguments.items()

        assert f"Which {'query' if name == 'q' else name.replace('_', ' ')}?" == asked.reply
        assert value in answered.prompt
        assert not asked.uses
    assert len(pairs) > 50


def test_what_no_tool_does_is_declined() -> None:
    """The object that is asked for is in none of the names."""
    rng = Random(2)
    for tools, _ in TALKS:
        exchange = no_tool_fits(rng, tools)
        noun = exchange.key.split()[-1]  # after a verb of one word or two

        assert (NO_TOOL, ()) == (exchange.reply, exchange.uses)
        assert not any(noun in tool.name.split("_") for tool in tools)


def test_what_is_held_out_is_not_offered_for_training() -> None:
    """No tool made of a verb and an object lies on both sides of the split."""
    rng = Random(3)
    held_out = [draw_tools(rng, held_out=True) for _ in range(50)]

    assert not any(is_held_out(tool.key) for tools, _ in TALKS for tool in tools)
    assert all(is_held_out(tool.key) for tools in held_out for tool in tools if tool.key)
    assert all(any(tool.key for tool in tools) for tools in held_out)


def test_turns_are_of_every_kind_and_of_one_side() -> None:
    """Calls, two calls, questions for what is missing, and requests that no tool fits."""
    rng = Random(4)
    for side in (False, True):
        turns = [
            turn
            for _ in range(150)
            for turn in tool_turns(rng, draw_tools(rng, held_out=side), held_out=side)
        ]

        assert {"tool call", "two tool calls", "tool question", "no tool fits"} == {
            turn.task for turn in turns
        }
        assert {side} == {is_held_out(turn.key) for turn in turns}


def test_sums_know_whether_a_tool_does_them() -> None:
    """Two tools that reckon are only offered together when they reckon differently."""
    for tools, _ in TALKS:
        reckoning = [tool.name for tool in tools if calculates((tool,))]

        assert calculates(tools) == bool(reckoning)
        assert len(reckoning) < 2 or "calculat" not in " ".join(reckoning)


@pytest.mark.parametrize(
    ("result", "city", "reply"),
    [
        ('{"temp": 12, "sky": "clear"}', "Corve", "In Corve, the temp is 12 and the sky is clear."),
        ('{"city": "Corve", "temp": 3}', "Corve", "In Corve, the temp is 3."),
        ('{"city": "Corve", "temp": 3}', "", "The city is Corve and the temp is 3."),
        ('{"a_b": 1, "c": 2, "d": "e f"}', "", "The a b is 1, the c is 2 and the d is e f."),
        ('{"day": "Monday", "open": false}', "", "The day is Monday and it is not open."),
        ('{"titles": ["a b", "c"]}', "", "The titles are a b and c."),
        ('{"error": "not found"}', "Corve", "That did not work: not found."),
        ('{"ok": true}', "", "Done."),
        ('{"ok": true, "id": 0}', "", "The id is 0."),
        ('{"success": false}', "", "That did not work."),
        ("85", "", "The result is 85."),
        ("07:30", "Corve", "The result is 07:30."),
        ("Sunny, 21 degrees.", "Corve", "Sunny, 21 degrees."),
        ("{}", "", "Done."),
        ('{"city": "Corve"}', "Corve", "Done."),
    ],
)
def test_a_result_has_one_reply(result: str, city: str, reply: str) -> None:
    """Fields in their order, where they hold before them; texts as they are."""
    assert reply == say(result, {"city": city} if city else {})


@pytest.mark.parametrize("theme", JSON_THEMES)
def test_json_replies_parse(theme: Theme) -> None:
    """And are written as Python writes them, so that there is one right reply."""
    exchanges = drawn(theme)
    for exchange in exchanges:
        assert exchange.reply == json.dumps(json.loads(exchange.reply), ensure_ascii=False)

    assert exchanges == drawn(theme)
    assert not any(is_held_out(exchange.key) for exchange in exchanges)


@pytest.mark.parametrize("theme", JSON_THEMES[:2])
def test_json_has_the_keys_that_were_asked_for(theme: Theme) -> None:
    """In the order in which the prompt names them; what it does not tell is null."""
    nulls = 0
    for exchange in drawn(theme):
        found = json.loads(exchange.reply)
        nulls += None in found.values()
        quoted = [f'"{name}"' for name in found]
        listings = {joined(list(found)), ", ".join(found), joined(quoted)}

        assert any(listing in exchange.prompt for listing in listings)
        for value in found.values():
            assert value in (True, False, None) or str(value) in exchange.prompt
    assert (nulls > 0) == (theme is structured.extract_json)


@pytest.mark.parametrize("theme", JSON_THEMES[2:5])
def test_json_holds_what_was_written(theme: Theme) -> None:
    """Every value, and every key but the usual ones, is in the prompt, one after the other."""
    for exchange in drawn(theme):
        place = 0
        for item in re.findall(r'"([^"]+)"|(\d+)', exchange.reply):
            if "".join(item) not in ("name", "age", "colour", "color", "food", "day", "friend"):
                place = exchange.prompt.index("".join(item), place)
