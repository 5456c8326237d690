"""The corpus: an endless, seeded stream of conversations, all made by this program.

A conversation is an optional system prompt followed by exchanges from the themes. The same
seed gives the same conversations on every machine. Run this module to read a few of them.
"""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts, Theme, draw
from training.brooklet.text import words
from training.brooklet.themes import THEMES, WEIGHTS
from training.brooklet.themes.vocabulary import made_up_word

NAME = "Brooklet"

Message = dict[str, str]

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


def system_prompt(rng: Random) -> tuple[str, str]:
    """Draw a system prompt, possibly empty, and the name the assistant then answers to."""
    kind = rng.random()
    if kind < 0.45:
        return "", NAME
    if kind < 0.75:
        return rng.choice(PLAIN_SYSTEMS), NAME
    name = made_up_word(rng).capitalize() if rng.random() < 0.6 else rng.choice(NICKNAMES)
    return rng.choice(NAMING_SYSTEMS).format(n=name), name


def roughen(rng: Random, prompt: str) -> str:
    """Type a prompt the way people do: lower-case start, no final mark, a polite word."""
    kind = rng.random()
    if kind < 0.12:
        return prompt[0].lower() + prompt[1:]
    if kind < 0.22:
        return prompt.rstrip(".!?") or prompt
    if kind < 0.26:
        opener = rng.choice(("Hello", "Hi", "Hey", "Ok", "Please"))
        return f"{opener}, {prompt[0].lower()}{prompt[1:]}"
    return prompt


def to_messages(system: str, exchanges: list[Exchange]) -> list[Message]:
    """Lay a conversation out as chat messages."""
    messages = [{"role": "system", "content": system}] if system else []
    for exchange in exchanges:
        messages.append({"role": "user", "content": exchange.prompt})
        messages.append({"role": "assistant", "content": exchange.reply})
    return messages


def next_theme(rng: Random) -> Theme:
    """Draw a theme by weight."""
    return rng.choices(THEMES, weights=tuple(WEIGHTS.values()))[0]


def conversation(rng: Random) -> list[Message]:
    """Draw one training conversation, free of held-out items."""
    system, name = system_prompt(rng)
    facts: Facts = {"assistant": name}
    exchanges = []
    for _ in range(rng.choice((1, 1, 2, 3, 4, 6, 9))):
        exchange = draw(next_theme(rng), rng, facts)
        facts |= exchange.learned
        rough = roughen(rng, exchange.prompt)
        exchanges.append(Exchange(exchange.task, rough, exchange.reply))
    return to_messages(system, exchanges)


def main() -> None:
    """Print a few conversations."""
    rng = Random(0)
    for _ in range(8):
        for message in conversation(rng):
            print(f"{message['role']}: {message['content']}")
        print("-" * 60)


if __name__ == "__main__":
    main()
