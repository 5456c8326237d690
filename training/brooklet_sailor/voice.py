"""How a sailor says what Brooklet says."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from training.brooklet.corpus import Conversation, Message, conversation

OPENING = "Arr! "
#: Words of the answers, and what a sailor says instead; longer ones come first.
_WORDS = {
    "you are": "ye be",
    "I am": "I be",
    "hello": "ahoy",
    "your": "yer",
    "you": "ye",
    "my": "me",
    "is": "be",
    "are": "be",
    "friend": "shipmate",
}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_BY_LOWER_CASE = {word.lower(): said for word, said in _WORDS.items()}


def _say(found: re.Match[str]) -> str:
    said = _BY_LOWER_CASE[found[0].lower()]
    return said[0].upper() + said[1:] if found[0][0].isupper() else said


def in_sailors_words(reply: str) -> str:
    """Put a reply the sailor's way; JSON stays as it is, for a program reads it."""
    if reply.startswith(("{", "[")):
        return reply
    return OPENING + _WORD.sub(_say, reply)


def sailors_message(message: Message) -> Message:
    """The same message, in a sailor's words if it is a reply."""
    if message["role"] != "assistant" or "tool_calls" in message:
        return message
    return message | {"content": in_sailors_words(message["content"])}


def sailors_conversation(rng: Random) -> Conversation:
    """Draw a conversation of Brooklet's corpus, with a sailor for the assistant."""
    talk = conversation(rng)
    return replace(talk, messages=[sailors_message(message) for message in talk.messages])
