"""The corpus: an endless, seeded stream of conversations, all made by this program.

A conversation has perhaps a system prompt, perhaps tools, and exchanges from the themes. The same
seed gives the same conversations on every machine. Run this module to read a few of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from training.brooklet.exchange import Exchange, Facts, Theme, draw
from training.brooklet.text import words
from training.brooklet.themes import ASK, CHAT, FIRST, SUMS, TELL, Mix
from training.brooklet.themes.drills import ask_name
from training.brooklet.themes.manners import Manner, draw_manner
from training.brooklet.themes.tool_offers import Tool
from training.brooklet.themes.tools import calculates, draw_tools, tool_turns
from training.brooklet.themes.transcripts import raw_text
from training.brooklet.themes.unknown import without_tools
from training.brooklet.themes.vocabulary import COMMON_NAMES, made_up_word

NAME = "Brooklet"

Message = dict[str, Any]

PLAIN_SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful, honest assistant.",
    "Be brief.",
    "You are a friendly assistant.",
    "Answer politely.",
    "You are a chatbot.",
    "Be kind.",
    "You are a helpful AI assistant.",
    "You are an assistant that answers questions.",
    "Answer the user's questions.",
    "You are a careful assistant. Answer in short sentences.",
    "Please help the user.",
    "Respond in English.",
    "You are a small language model.",
    "You are a helpful assistant. Answer as well as you can.",
    "Be concise and clear.",
    "The user is a beginner.",
    "You are Brooklet.",
    "You are a language model called Brooklet.",
)
NAMING_SYSTEMS = (
    "You are {n}.",
    "Your name is {n}.",
    "You are {n}, a helpful assistant.",
    "You are called {n}.",
    "You are {n}, a friendly assistant.",
    "Your name is {n}. You help the user.",
    "You are an assistant named {n}.",
    "You are a helpful assistant. Your name is {n}.",
)
NICKNAMES = words("Pebble Nova Rusty Luna Pixel Atlas Ember Willow Otto Bolt Sage Ruby Max Alice")


# What a prompt of these tasks holds is repeated to the letter, so it is not roughened.
VERBATIM = {"echo", "gibberish", "tool call", "two tool calls", "no tool fits"}
# A reply longer than this is not dressed up in a manner that the system prompt asks for.
LONGEST_MANNERED = 300
NO_STEPS = "This needs no steps."


@dataclass(frozen=True)
class Conversation:
    """Chat messages, the tools they may call, and the thought before the last reply, if any."""

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    thought: str = ""


@dataclass(frozen=True)
class Setting:
    """What a conversation starts from: its system prompt and what that asks for, and its tools."""

    system: str = ""
    name: str = NAME
    manner: Manner | None = None
    tools: tuple[Tool, ...] = ()

    def dress(self, exchange: Exchange) -> Exchange:
        """Put the reply the way the system prompt wants it."""
        if self.manner is None:
            return exchange
        return replace(exchange, reply=self.manner.apply(exchange.reply))


def draw_name(rng: Random, mix: Mix) -> str:
    """Draw a name for the model to go by."""
    if rng.random() < 0.6:
        return made_up_word(rng).capitalize()
    if mix.names and rng.random() < 0.5:
        return rng.choice(COMMON_NAMES)
    return rng.choice(NICKNAMES)


def draw_setting(rng: Random, mix: Mix = FIRST) -> Setting:
    """Draw what a conversation starts from; nearly half start from nothing at all."""
    tools = draw_tools(rng) if rng.random() < mix.tools else ()
    if rng.random() < mix.manners:
        manner = draw_manner(rng)
        return Setting(manner.system, manner=manner, tools=tools)
    kind = rng.random()
    if kind < 0.5:
        return Setting(tools=tools)
    if kind < 0.8:
        return Setting(rng.choice(PLAIN_SYSTEMS), tools=tools)
    name = draw_name(rng, mix)
    return Setting(rng.choice(NAMING_SYSTEMS).format(n=name), name=name, tools=tools)


def roughen(rng: Random, exchange: Exchange) -> Exchange:
    """Type a prompt the way people do: lower-case start, no final mark, a polite word."""
    prompt, kind = exchange.prompt, rng.random()
    if exchange.task in VERBATIM or "json" in exchange.task or kind >= 0.26:
        return exchange
    lowered = prompt[0].lower() + prompt[1:]
    if kind < 0.12:
        return replace(exchange, prompt=lowered)
    if kind < 0.22:
        return replace(exchange, prompt=prompt.rstrip(".!?") or prompt)
    opener = rng.choice(("Hello", "Hi", "Hey", "Ok", "Please"))
    return replace(exchange, prompt=f"{opener}, {lowered}")


def to_messages(setting: Setting, exchanges: list[Exchange]) -> list[Message]:
    """Lay a conversation out as chat messages, calls of tools and their results included."""
    messages: list[Message] = []
    if setting.system:
        messages.append({"role": "system", "content": setting.system})
    for exchange in exchanges:
        messages.append({"role": "user", "content": exchange.prompt})
        if exchange.uses:
            calls = [{"name": use.name, "arguments": use.arguments} for use in exchange.uses]
            called = [{"type": "function", "function": call} for call in calls]
            messages.append({"role": "assistant", "content": "", "tool_calls": called})
            messages += [{"role": "tool", "content": use.result} for use in exchange.uses]
        messages.append({"role": "assistant", "content": exchange.reply})
    return messages


def fits(setting: Setting, theme: Theme, exchange: Exchange) -> bool:
    """Whether an exchange makes sense where these tools and this manner are."""
    if setting.manner and len(exchange.reply) > LONGEST_MANNERED:
        return False
    if setting.tools and theme is without_tools:
        return False
    return not (theme in SUMS and calculates(setting.tools))


def draw_turns(rng: Random, setting: Setting, facts: Facts, mix: Mix) -> tuple[Exchange, ...]:
    """Draw what comes next: mostly one turn, which uses the tools where there are some."""
    if mix.names and setting.name != NAME and rng.random() < mix.names:
        return (draw(ask_name, rng, facts),)
    if setting.tools and rng.random() < 0.65:
        return tool_turns(rng, setting.tools, pairs=mix.pairs)
    while True:
        theme = rng.choices(tuple(mix.themes), weights=tuple(mix.themes.values()))[0]
        exchange = draw(theme, rng, facts)
        if fits(setting, theme, exchange):
            return (exchange,)


def _talk(rng: Random, setting: Setting, facts: Facts, mix: Mix) -> Iterator[Exchange]:
    """Draw the turns of a conversation, one after the other."""
    if rng.random() < mix.recall:  # something is told at first and asked for at the end
        told = rng.randrange(len(TELL))
        fillers = rng.choices(CHAT, k=rng.randint(0, 7))
        for theme in (TELL[told], *fillers, ASK[told]):
            yield draw(theme, rng, facts)
        return
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        yield from draw_turns(rng, setting, facts, mix)


def conversation(rng: Random, mix: Mix = FIRST) -> Conversation:
    """Draw one training conversation, free of held-out items."""
    setting = draw_setting(rng, mix)
    facts: Facts = {"assistant": setting.name}
    exchanges = []
    for exchange in _talk(rng, setting, facts, mix):
        facts |= exchange.learned
        exchanges.append(setting.dress(roughen(rng, exchange)))
    thought = ""
    if rng.random() < mix.thoughts and not exchanges[-1].uses:
        thought = exchanges[-1].thought or NO_STEPS
    tools = [tool.schema() for tool in setting.tools]
    return Conversation(to_messages(setting, exchanges), tools, thought)


def document(rng: Random) -> str:
    """Draw a plain text, for prompts that come without the chat format."""
    facts: Facts = {"assistant": NAME}
    exchanges = [draw(rng.choice(CHAT), rng, facts) for _ in range(rng.randint(1, 4))]
    return raw_text(rng, exchanges)


def main() -> None:
    """Print a few conversations."""
    rng = Random(0)
    for _ in range(12):
        talk = conversation(rng)
        for tool in talk.tools:
            print("offers", json.dumps(tool["function"], ensure_ascii=False))
        for message in talk.messages:
            calls = [call["function"] for call in message.get("tool_calls", ())]
            print(f"{message['role']}: {message['content']}", *calls)
        print(f"thought: {talk.thought}\n" if talk.thought else "", "-" * 60, sep="")
    print(document(rng))


if __name__ == "__main__":
    main()
