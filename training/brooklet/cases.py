"""The evaluator's cases: conversations that end where a held-out reply is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from training.brooklet.corpus import (
    LONGEST_MANNERED,
    NAMING_SYSTEMS,
    Message,
    Setting,
    draw_setting,
    fits,
    to_messages,
)
from training.brooklet.exchange import Exchange, Facts, Theme, draw
from training.brooklet.themes import ASK, CHAT, TELL, THEMES
from training.brooklet.themes.drills import ask_name
from training.brooklet.themes.manners import draw_manner
from training.brooklet.themes.tools import draw_tools, tool_turns
from training.brooklet.themes.unseen import UNSEEN, UNSEEN_NAMES

MEMORY_TURNS = 6  # from the telling to the asking


@dataclass(frozen=True)
class Case:
    """A conversation, and what the next message has to hold."""

    task: str
    messages: list[Message]
    wanted: tuple[str, ...]  # texts, any of which will do
    exact: bool = True  # whether a wanted text must be the whole reply
    calls: list[tuple[str, Any]] = field(default_factory=list)  # name, arguments
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinks: bool = False


def _case(setting: Setting, before: list[Exchange], exchange: Exchange, *, task: str = "") -> Case:
    """End a conversation at the reply to an exchange."""
    answers = tuple(exchange.answer.split("|")) if exchange.answer else (exchange.reply,)
    messages = to_messages(setting, [*before, exchange])[:-1]
    tools = [tool.schema() for tool in setting.tools]
    exact = not exchange.answer
    return Case(task or exchange.task, messages, answers, exact, tools=tools)


def _plain_setting(rng: Random) -> Setting:
    """Draw a setting in which replies keep their usual form."""
    while True:
        setting = draw_setting(rng)
        if setting.manner is None and not setting.tools:
            return setting


def _fillers(rng: Random, facts: Facts, count: int) -> list[Exchange]:
    return [draw(rng.choice(CHAT), rng, facts) for _ in range(count)]


def held_out(rng: Random, theme: Theme) -> Case:
    """A held-out item of a theme, perhaps some turns into a conversation."""
    setting = _plain_setting(rng)
    facts: Facts = {"assistant": setting.name}
    before = []
    if theme in ASK and rng.random() < 0.5:
        before.append(draw(TELL[ASK.index(theme)], rng, facts, held_out=True))
        facts |= before[0].learned
    before += _fillers(rng, facts, rng.randint(0, 2))
    return _case(setting, before, draw(theme, rng, facts, held_out=True))


def memory(rng: Random) -> Case:
    """Something told, five turns of other things, and the question about it."""
    setting, told = _plain_setting(rng), rng.randrange(len(TELL))
    facts: Facts = {"assistant": setting.name}
    telling = draw(TELL[told], rng, facts, held_out=True)
    facts |= telling.learned
    before = [telling, *_fillers(rng, facts, MEMORY_TURNS - 2)]
    asking = draw(ASK[told], rng, facts, held_out=True)
    return _case(setting, before, asking, task=f"memory over {MEMORY_TURNS} turns")


def tool_call(rng: Random) -> Case:
    """A request to tools that were never seen: they fit, or do not, or something is missing."""
    setting = Setting(tools=draw_tools(rng, held_out=True))
    turns = tool_turns(rng, setting.tools, held_out=True)
    exchange = turns[-1]
    if not exchange.uses:
        return _case(setting, list(turns[:-1]), exchange)
    messages = to_messages(setting, list(turns))
    due = max(index for index, message in enumerate(messages) if "tool_calls" in message)
    calls = [(use.name, dict(use.arguments)) for use in exchange.uses]
    tools = [tool.schema() for tool in setting.tools]
    return Case(exchange.task, messages[:due], (), calls=calls, tools=tools)


def tool_result(rng: Random) -> Case:
    """The answer that follows a tool's result."""
    setting = Setting(tools=draw_tools(rng, held_out=True))
    turns = tool_turns(rng, setting.tools, held_out=True)
    while not turns[-1].uses:
        turns = tool_turns(rng, setting.tools, held_out=True)
    return _case(setting, list(turns[:-1]), turns[-1], task="tool result")


def tools_unneeded(rng: Random) -> Case:
    """An ordinary question while tools are at hand."""
    setting = Setting(tools=draw_tools(rng, held_out=True))
    facts: Facts = {"assistant": setting.name}
    theme = rng.choice(CHAT)
    while not fits(setting, theme, exchange := draw(theme, rng, facts, held_out=True)):
        theme = rng.choice(CHAT)
    return _case(setting, [], exchange, task="tools not needed")


def manner(rng: Random) -> Case:
    """A system prompt that asks for a form which every reply has to take."""
    asked = draw_manner(rng, held_out=True)
    setting = Setting(asked.system, manner=asked)
    facts: Facts = {"assistant": setting.name}
    before = [setting.dress(exchange) for exchange in _fillers(rng, facts, rng.randint(0, 2))]
    exchange = draw(rng.choice(CHAT), rng, facts)
    while exchange.answer or len(exchange.reply) > LONGEST_MANNERED:
        exchange = draw(rng.choice(CHAT), rng, facts)
    return _case(setting, before, setting.dress(exchange), task="system prompt")


def given_name(rng: Random) -> Case:
    """A system prompt that gives the model a name, and a question for it."""
    name = rng.choice(UNSEEN_NAMES)
    setting = Setting(rng.choice(NAMING_SYSTEMS).format(n=name), name=name)
    facts: Facts = {"assistant": name}
    before = _fillers(rng, facts, rng.randint(0, 2))
    return _case(setting, before, draw(ask_name, rng, facts), task="given name")


def thinking(rng: Random) -> Case:
    """A held-out item that takes steps, with thinking on."""
    setting = _plain_setting(rng)
    exchange = draw(rng.choice(CHAT), rng, {"assistant": setting.name}, held_out=True)
    while not exchange.thought:
        exchange = draw(rng.choice(CHAT), rng, {"assistant": setting.name}, held_out=True)
    case = _case(setting, [], exchange, task="thinking")
    return Case(case.task, case.messages, case.wanted, case.exact, thinks=True)


SKILLS: tuple[Callable[[Random], Case], ...] = (
    memory,
    tool_call,
    tool_result,
    tools_unneeded,
    manner,
    thinking,
    given_name,
)


def unseen(rng: Random) -> Iterator[Case]:
    """Questions of real life, which no theme asks."""
    for prompt in UNSEEN:
        exchange = Exchange("real questions", prompt, "", answer="I don't know")
        yield _case(_plain_setting(rng), [], exchange)


def make_cases(rng: Random, count: int) -> list[Case]:
    """Compose so many cases of each theme and skill, and the fixed questions."""
    cases = [held_out(rng, theme) for theme in THEMES for _ in range(count)]
    cases += [skill(rng) for skill in SKILLS for _ in range(count)]
    return [*cases, *unseen(rng)]
