"""`truncate`: what stays of a prompt that is too long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwell.core.errors import InvalidRequest
from streamwell.core.messages import Message
from streamwell.service.truncation import last_of_chat, last_of_ids, last_of_text

#: What the tokenizer puts before every text.
BOS = 1


def encode_text(text: str) -> list[int]:
    return [BOS, *map(ord, text)]


def encode_chat(messages: Sequence[Message]) -> list[int]:
    """`^` before all, `<u:…>` for what somebody says, `*` where the answer begins."""
    text = "".join(f"<{message.role[0]}:{message.content}>" for message in messages)
    return list(map(ord, f"^{text}*"))


def chat(limit: int, *messages: str) -> str:
    """The end of a conversation, of messages such as `user hello`."""
    parsed = [Message(*message.split(" ", 1)) for message in messages]
    ids = last_of_chat(encode_chat, parsed, limit)
    assert len(ids) <= limit
    return "".join(map(chr, ids))


def test_a_text_keeps_its_end_and_what_begins_every_text() -> None:
    """So many tokens in all; a short one is left alone."""
    assert [BOS, *map(ord, "def")] == last_of_text(encode_text, "abcdef", 4)
    assert [BOS, *map(ord, "abc")] == last_of_text(encode_text, "abc", 4)
    assert [4, 5] == last_of_ids([1, 2, 3, 4, 5], 2)
    assert [1, 2] == last_of_ids([1, 2], 9)


def test_the_oldest_messages_go_first() -> None:
    """Whole ones, up to one of the user's; the system's stays."""
    said = ("system S", "user one", "assistant two", "user three", "assistant four", "user five")
    whole = "^<s:S><u:one><a:two><u:three><a:four><u:five>*"

    assert whole == chat(len(whole), *said)
    assert "^<s:S><u:three><a:four><u:five>*" == chat(len(whole) - 1, *said)
    assert "^<s:S><u:three><a:four><u:five>*" == chat(32, *said)
    assert "^<s:S><u:five>*" == chat(31, *said)


def test_then_the_beginning_of_what_was_said_last() -> None:
    """After what the template writes before it, so that its marks stay whole."""
    assert "^<s:S><u:fghij>*" == chat(16, "system S", "user before", "user abcdefghij")
    assert "^<u:j>*" == chat(7, "user abcdefghij")


@pytest.mark.parametrize("limit", [1, 6])
def test_a_limit_without_room_for_words_is_refused(limit: int) -> None:
    """The error names the field, and how much the template takes."""
    with pytest.raises(InvalidRequest, match="without a word the prompt has 6 tokens") as refused:
        chat(limit, "user abcdefghij")
    assert "truncate" == refused.value.param

    with pytest.raises(InvalidRequest, match="leaves no room"):
        last_of_text(encode_text, "abc", 1)


@settings(derandomize=True, deadline=None, database=None)
@given(st.integers(1, 400), st.integers(1, 300))
def test_as_many_turns_stay_as_fit(num_turns: int, limit: int) -> None:
    """Of equal turns, the most that fit; however long the conversation is."""
    limit = max(limit, 8)
    kept = chat(limit, *["user x"] * num_turns)

    num_kept = kept.count("<u:x>")
    assert num_kept == min(num_turns, (limit - 2) // 5)


def test_a_long_conversation_is_not_encoded_whole() -> None:
    """What is encoded at a time stays near to the limit."""
    longest = 0

    def encode(messages: Sequence[Message]) -> list[int]:
        nonlocal longest
        longest = max(longest, len(ids := encode_chat(messages)))
        return ids

    last_of_chat(encode, [Message("user", "x" * 10)] * 2000, 100)

    assert longest < 400
