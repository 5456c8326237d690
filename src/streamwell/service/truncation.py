"""Keeps the end of a prompt that is too long, which is what `truncate` in requests asks for.

Rules:
1. Of a text, and of ids, the last tokens stay, and with a text what the tokenizer puts before
   every text.
2. Of a conversation whole messages go, the oldest first, up to one of the user's. Its first system
   messages stay, and all from the user's last message on.
3. If that is too long still, its first tokens go: those after what the chat template writes before
   the user's words.
4. A limit that leaves no room for anybody's words is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from streamwell.core.errors import InvalidRequest
from streamwell.core.messages import Message

#: A conversation of more characters than this per token is looked at from its end only.
_CHARS_PER_TOKEN = 16

EncodeChat = Callable[[Sequence[Message]], list[int]]
EncodeText = Callable[[str], list[int]]


def last_of_ids(ids: Sequence[int], limit: int) -> list[int]:
    """The last `limit` ids."""
    return list(ids[-limit:])


def last_of_text(encode: EncodeText, text: str, limit: int) -> list[int]:
    """The ids of a text's end.

    Raises:
        InvalidRequest: there is no room for a token of it.
    """
    return _end_of(encode(text), encode(""), limit)


def last_of_chat(encode: EncodeChat, messages: Sequence[Message], limit: int) -> list[int]:
    """The ids of a conversation's end.

    Raises:
        InvalidRequest: there is no room for anybody's words, or the template refuses the messages.
    """
    num_chars = sum(len(message.content) for message in messages)
    if num_chars <= _CHARS_PER_TOKEN * limit and len(ids := encode(messages)) <= limit:
        return ids
    head = list(takewhile(lambda message: message.role == "system", messages))
    rest = messages[len(head) :]
    starts = [at for at, message in enumerate(rest) if message.role == "user"] or [0]

    def last_turns(count: int) -> list[int]:
        return encode([*head, *rest[starts[-count] :]])

    ids = last_turns(_num_fitting(lambda count: len(last_turns(count)), len(starts), limit))
    if len(ids) <= limit:
        return ids
    without_words = [replace(message, content="") for message in rest[starts[-1] :]]
    return _end_of(ids, encode([*head, *without_words]), limit)


def _num_fitting(length: Callable[[int], int], most: int, limit: int) -> int:
    """How many of the last turns are short enough; one at least.

    Looks at twice as many each time, so that what is encoded is never much more than what stays.
    """
    count = 1
    while count < most and length(min(2 * count, most)) <= limit:
        count = min(2 * count, most)
    more = range(count + 1, min(2 * count, most) + 1)
    return count + bisect_right(more, limit, key=length)


def _end_of(ids: list[int], frame: list[int], limit: int) -> list[int]:
    """The last ids, after those with which `ids` and `frame`, the same without words, begin."""
    if len(ids) <= limit:
        return ids
    if len(frame) >= limit:
        message = f"{limit} leaves no room: without a word the prompt has {len(frame)} tokens"
        raise InvalidRequest(message, "truncate")
    pairs = zip(ids, frame, strict=False)
    num_head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return [*ids[:num_head], *ids[len(ids) - limit + num_head :]]
