"""Manners: system prompts that change how every reply looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.brooklet.exchange import is_held_out
from training.brooklet.text import phrases
from training.brooklet.themes.vocabulary import COMMON_NAMES, WORDS, made_up_word

START = phrases(
    """
    Start every answer with {x} | Begin every answer with {x} | Start each reply with {x} |
    Always start with {x} | Every answer starts with {x} | Begin all your answers with {x} |
    Your answers always begin with {x} | You must start every reply with {x} |
    Put {x} before every answer | Start all replies with {x} | Always begin your answer with {x} |
    The first word of every answer is {x}
    """
)
END = phrases(
    """
    End every answer with {x} | Finish every answer with {x} | End each reply with {x} |
    Always end with {x} | Every answer ends with {x} | End all your answers with {x} |
    Your answers always end with {x} | You must end every reply with {x} |
    Put {x} after every answer | End all replies with {x} | Always finish your answer with {x} |
    The last word of every answer is {x}
    """
)
ONLY = phrases(
    """
    Whatever the user says, answer {x} | Answer every question with only {x} |
    Only ever say {x} | The only thing you say is {x} | You can only say {x} |
    Always answer just {x} | Answer {x} to everything | Every answer is {x} and nothing else |
    Reply {x} to every message | Say nothing but {x}
    """
)
ADDRESS = phrases(
    """
    Call the user {x} | Always call the user {x} | Address the user as {x} |
    Call me {x} in every answer | End every answer by calling the user {x} |
    Use the name {x} for the user in every answer | Always address me as {x} |
    You call the user {x} | Address the user as {x} in every answer |
    In every answer, call the user {x}
    """
)
AS_JSON = phrases(
    """
    Answer in JSON with the key {x} | Always answer as JSON with the key {x} |
    Reply only in JSON with one key, {x} | Every answer is a JSON object with the key {x} |
    Respond in JSON. The key is {x} | Your answers are JSON objects with the key {x} |
    Write every answer as JSON under the key {x} | Return JSON only, with the key {x} |
    Put every answer in a JSON object with the key {x} | Use JSON for all replies, with the key {x}
    """
)
WRAP = phrases(
    """
    Put every answer in {x} | Write every answer in {x} | Always answer in {x} |
    Every answer stands in {x} | Put {x} around every answer | Use {x} around each reply |
    Your answers are always in {x} | Surround each answer with {x} | Wrap every reply in {x} |
    All your answers must be in {x}
    """
)
MARKS = {
    "square brackets": ("[", "]"),
    "brackets": ("(", ")"),
    "parentheses": ("(", ")"),
    "quotation marks": ('"', '"'),
    "quotes": ('"', '"'),
    "stars": ("*", "*"),
    "asterisks": ("*", "*"),
    "curly brackets": ("{", "}"),
    "angle brackets": ("<", ">"),
    "dashes": ("-", "-"),
    "bold": ("**", "**"),
}
INTRODUCTIONS = (
    "You are a helpful assistant. ",
    "You are a helpful AI assistant. ",
    "You are a friendly assistant. ",
    "Be kind. ",
    "Be brief. ",
    "Answer politely. ",
    "You are a chatbot. ",
)
KEYS = ("answer", "reply", "text", "response", "message", "content", "output", "result", "say")
EXTRAS = (
    "🌊",
    "😊",
    "⭐",
    "🦊",
    "Ahoy!",
    "Hooray!",
    "Well,",
    "OK:",
    "Over.",
    "Amen.",
    "Yes!",
    "...",
)
TITLES = ("Captain", "sir", "madam", "friend", "boss", "my friend", "master", "dear", "chief")

Apply = Callable[[str], str]


@dataclass(frozen=True)
class Manner:
    """How every reply of a conversation looks, and the system prompt that asks for it."""

    system: str
    apply: Apply  # a plain reply to the reply in this manner
    key: str  # names the item that may be held out


def _word(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(EXTRAS)
    word = made_up_word(rng) if kind < 0.6 else rng.choice(WORDS)
    return word.capitalize() if rng.random() < 0.4 else word


def _title(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(TITLES)
    return made_up_word(rng).capitalize() if kind < 0.8 else rng.choice(COMMON_NAMES)


def call_by(reply: str, name: str) -> str:
    """Put a name at the end of a reply, before its last mark."""
    if reply[-1:] in (".", "!", "?"):
        return f"{reply[:-1]}, {name}{reply[-1]}"
    return f"{reply}, {name}"


def _written(rng: Random, forms: list[str], item: str) -> str:
    """Write a system prompt; what is asked for stands in quotes when it ends with a mark."""
    quote = rng.choice(('"', '"', "'")) if not item[-1].isalnum() or rng.random() < 0.4 else ""
    sentence = rng.choice(forms).format(x=f"{quote}{item}{quote}")
    introduction = rng.choice(INTRODUCTIONS) if rng.random() < 0.4 else ""
    return introduction + sentence + rng.choice((".", ".", ".", " ")).strip()


def _start(rng: Random) -> Manner:
    word = _word(rng)
    return Manner(_written(rng, START, word), lambda reply: f"{word} {reply}", f"manner {word}")


def _end(rng: Random) -> Manner:
    word = _word(rng)
    return Manner(_written(rng, END, word), lambda reply: f"{reply} {word}", f"manner {word}")


def _only(rng: Random) -> Manner:
    word = _word(rng)
    return Manner(_written(rng, ONLY, word), lambda reply: word, f"manner {word}")


def _address(rng: Random) -> Manner:
    name = _title(rng)
    system = _written(rng, ADDRESS, name)
    return Manner(system, lambda reply: call_by(reply, name), f"manner {name}")


def _as_json(rng: Random) -> Manner:
    key = made_up_word(rng) if rng.random() < 0.5 else rng.choice(KEYS)
    system = _written(rng, AS_JSON, key)
    return Manner(
        system, lambda reply: json.dumps({key: reply}, ensure_ascii=False), f"manner {key}"
    )


def _wrap(rng: Random) -> Manner:
    name, (left, right) = rng.choice(list(MARKS.items()))
    form = rng.choice(WRAP)
    introduction = rng.choice(INTRODUCTIONS) if rng.random() < 0.4 else ""
    system = f"{introduction}{form.format(x=name)}."
    return Manner(system, lambda reply: f"{left}{reply}{right}", f"manner {form} {name}")


KINDS = (_start, _start, _end, _end, _as_json, _as_json, _address, _address, _only, _wrap)


def draw_manner(rng: Random, *, held_out: bool = False) -> Manner:
    """Draw a manner from one side of the held-out split."""
    while is_held_out((manner := rng.choice(KINDS)(rng)).key) != held_out:
        pass
    return manner
