"""Tools: calling the one that fits, stating what it gave back, and saying that none fits."""

from __future__ import annotations

import re
from random import Random

from training.brooklet.exchange import Exchange, ToolUse, is_held_out
from training.brooklet.themes.tool_classics import CALCULATING, CLASSICS
from training.brooklet.themes.tool_offers import Parameter, Tool, draw_pair, pair_tool
from training.brooklet.themes.tool_results import Arguments, joined, product_result, say, sum_result
from training.brooklet.themes.tool_words import ACTIONS, LOOKUPS

NO_TOOL = "I have no tool for that."

LEADS = (
    "{}.",
    "{}.",
    "{}",
    "{}!",
    "Please {}.",
    "Can you {}?",
    "Could you {}?",
    "Can you please {}?",
    "{}, please.",
    "I want you to {}.",
    "I would like you to {}.",
    "I need you to {}.",
    "Would you {}?",
    "Now {}.",
    "Use a tool to {}.",
)


def _words(tool: Tool) -> set[str]:
    """The words that a tool is offered with."""
    names = " ".join(parameter.name for parameter in tool.parameters)
    return set(
        re.findall("[a-z]+", f"{tool.name} {tool.request} {tool.description} {names}".lower())
    )


def _noun(tool: Tool) -> str:
    """The object of a tool made of a pair."""
    return tool.key.split()[-1]


def _clash(one: Tool, other: Tool) -> bool:
    """Whether a prompt could be meant for either of two tools."""
    if one.key and other.key:
        both_look_up = bool(one.questions and other.questions)
        return one.key == other.key or (both_look_up and _noun(one) == _noun(other))
    if one.key or other.key:
        pair, classic = (one, other) if one.key else (other, one)
        return _noun(pair) in _words(classic)
    if calculates((one,)) and calculates((other,)):
        return {one.result, other.result} != {sum_result, product_result}
    return one.request == other.request


def draw_tools(rng: Random, *, held_out: bool = False) -> tuple[Tool, ...]:
    """Draw one to five tools, some well known; those made of pairs lie on one side of the split."""
    tools: list[Tool] = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 3, 4, 5))):
        # What is held out must be among them, and of some classics nothing is.
        if rng.random() < 0.4 and (tools or not held_out):
            tool = rng.choice(CLASSICS).tool(rng)
        else:
            # Two tools for one object show that the verb counts, too.
            nouns = [_noun(tool) for tool in tools if tool.key]
            pair = draw_pair(rng, [*ACTIONS, *LOOKUPS], nouns, held_out=held_out)
            tool = pair_tool(rng, *pair)
        if not any(_clash(tool, other) for other in tools):
            tools.append(tool)
    return tuple(tools)


def calculates(tools: tuple[Tool, ...]) -> bool:
    """Whether sums are a tool's work in this conversation."""
    return any(tool.name in CALCULATING for tool in tools)


def _request(rng: Random, request: str) -> str:
    """Ask for something, given as the words after 'please'."""
    prompt = rng.choice(LEADS).format(request)
    return prompt[0].upper() + prompt[1:]


def _arguments(rng: Random, tool: Tool) -> Arguments:
    """Draw the arguments of a call: all that are required and some of the others."""
    return {
        parameter.name: parameter.slot.draw(rng)
        for parameter in tool.parameters
        if parameter.required or rng.random() < 0.6
    }


def _filled(form: str, tool: Tool, arguments: Arguments) -> str:
    """Say the arguments in a request or a question, in the order in which the tool has them."""
    said = [
        parameter.said(arguments[parameter.name])
        for parameter in tool.parameters
        if parameter.name in arguments and f"{{{parameter.name}}}" not in form
    ]
    return form.format("".join(f" {phrase}" for phrase in said), **arguments)


def _prompt(rng: Random, tool: Tool, arguments: Arguments) -> str:
    if tool.questions and rng.random() < 0.65:
        return _filled(rng.choice(tool.questions), tool, arguments)
    return _request(rng, _filled(tool.request, tool, arguments))


def _use(rng: Random, tool: Tool, arguments: Arguments) -> ToolUse:
    return ToolUse(tool.name, arguments, tool.result(rng, arguments))


def _key(tool: Tool, arguments: Arguments) -> str:
    """The verb and the object; of a well-known tool, which is always taught, its arguments."""
    return tool.key or f"tool {tool.name} {list(arguments.values())}"


def _thought(use: ToolUse) -> str:
    given = [
        f"{name} is {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in use.arguments.items()
    ]
    return f"The tool {use.name} fits{': ' if given else ''}{joined(given)}."


def _answered(task: str, prompt: str, uses: tuple[ToolUse, ...], keys: list[str]) -> Exchange:
    """Complete an exchange; it is held out as soon as one of its calls is."""
    key = next((key for key in keys if is_held_out(key)), keys[0])
    reply = " ".join(say(use.result, use.arguments) for use in uses)
    thought = " ".join(_thought(use) for use in uses)
    return Exchange(task, prompt, reply, key, uses=uses, thought=thought)


def use_tool(rng: Random, tools: tuple[Tool, ...]) -> Exchange:
    """Ask for what exactly one of the tools does."""
    tool = rng.choice(tools)
    arguments = _arguments(rng, tool)
    prompt = _prompt(rng, tool, arguments)
    return _answered("tool call", prompt, (_use(rng, tool, arguments),), [_key(tool, arguments)])


def _only_text(tool: Tool) -> Parameter | None:
    """The one required parameter, if a prompt can say two of its values or leave it out."""
    required = tool.required
    if len(required) == 1 and required[0].phrase and required[0].slot.type == "string":
        return required[0]
    return None


def _one_tool_twice(rng: Random, tool: Tool, parameter: Parameter) -> Exchange:
    values = [parameter.slot.draw(rng), parameter.slot.draw(rng)]
    while values[0] == values[1]:
        values[1] = parameter.slot.draw(rng)
    said = " and ".join(parameter.said(value) for value in values)
    form = rng.choice((tool.request, *tool.questions))
    prompt = form.format(f" {said}")
    if form == tool.request:
        prompt = _request(rng, prompt)
    calls: list[Arguments] = [{parameter.name: value} for value in values]
    uses = tuple(_use(rng, tool, arguments) for arguments in calls)
    keys = [_key(tool, arguments) for arguments in calls]
    return _answered("two tool calls", prompt, uses, keys)


def use_two(rng: Random, tools: tuple[Tool, ...]) -> Exchange:
    """Ask for two calls at once, of one tool or of two; for a single one if neither is possible."""
    twice = [(tool, parameter) for tool in tools if (parameter := _only_text(tool))]
    if twice and (len(tools) == 1 or rng.random() < 0.5):
        return _one_tool_twice(rng, *rng.choice(twice))
    if len(tools) == 1:
        return use_tool(rng, tools)
    chosen = rng.sample(tools, 2)
    calls = [_arguments(rng, tool) for tool in chosen]
    asked = [_filled(tool.request, tool, call) for tool, call in zip(chosen, calls, strict=True)]
    prompt = _request(rng, rng.choice((" and ", " and then ")).join(asked))
    uses = tuple(_use(rng, tool, call) for tool, call in zip(chosen, calls, strict=True))
    keys = [_key(tool, call) for tool, call in zip(chosen, calls, strict=True)]
    return _answered("two tool calls", prompt, uses, keys)


def ask_back(rng: Random, tools: tuple[Tool, ...]) -> tuple[Exchange, ...]:
    """Leave out what a tool needs; the reply asks for it, and a second prompt gives it.

    Where no tool has just one required text, this is an ordinary use of a tool.
    """
    lacking = [(tool, parameter) for tool in tools if (parameter := _only_text(tool))]
    if not lacking:
        return (use_tool(rng, tools),)
    tool, parameter = rng.choice(lacking)
    arguments: Arguments = {parameter.name: parameter.slot.draw(rng)}
    key = _key(tool, arguments)
    question = f"Which {parameter.words}?"
    thought = f"The tool {tool.name} fits, but {parameter.name} is missing."
    asked = Exchange("tool question", _prompt(rng, tool, {}), question, key, thought=thought)
    said = parameter.said(arguments[parameter.name])
    given = f"{said[0].upper()}{said[1:]}."
    return asked, _answered("tool call", given, (_use(rng, tool, arguments),), [key])


def _beside(rng: Random, tools: tuple[Tool, ...], *, held_out: bool) -> Tool:
    """Draw a tool that is not offered and does not resemble one that is."""
    offered = {word for tool in tools for word in _words(tool)}
    while True:
        if rng.random() < 0.3:
            tool = rng.choice(CLASSICS).tool(rng)
            # Sums need no tool.
            if not calculates((tool,)) and not any(_clash(tool, other) for other in tools):
                return tool
        verb, noun = draw_pair(rng, ACTIONS, held_out=held_out)
        if noun not in offered:
            return pair_tool(rng, verb, noun)


def no_tool_fits(rng: Random, tools: tuple[Tool, ...], *, held_out: bool = False) -> Exchange:
    """Ask for what none of the tools offered does."""
    while True:
        wanted = _beside(rng, tools, held_out=held_out)
        arguments = _arguments(rng, wanted)
        key = _key(wanted, arguments)
        if is_held_out(key) == held_out:
            break
    prompt = _prompt(rng, wanted, arguments)
    return Exchange("no tool fits", prompt, NO_TOOL, key, thought="No tool fits.")


def tool_turns(
    rng: Random, tools: tuple[Tool, ...], *, pairs: float = 0.1, held_out: bool = False
) -> tuple[Exchange, ...]:
    """Draw one turn about the tools, or two where the first lacks something, from one side.

    Of all turns `pairs` want two calls. With `held_out`, the tools have to be held-out ones too.
    """
    while True:
        kind = rng.random()
        if kind < 0.18:
            return (no_tool_fits(rng, tools, held_out=held_out),)
        if kind < 0.28:
            turns = ask_back(rng, tools)
        else:
            turns = ((use_two if kind < 0.28 + pairs else use_tool)(rng, tools),)
        if is_held_out(turns[0].key) == held_out:
            return turns
