"""The detokenizer, over real decoders of every family, each built here from a few tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import (
    BPEDecoder,
    ByteFallback,
    ByteLevel,
    Decoder,
    Fuse,
    Metaspace,
    Replace,
    Strip,
    WordPiece,
)
from tokenizers.decoders import Sequence as Steps
from tokenizers.models import BPE, WordLevel

from streamwell.text.detokenizer import MAX_HELD_IDS, REPLACEMENT, Detokenizer

Decode = Callable[[Sequence[int]], str]

check_many = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def byte_chars() -> list[str]:
    """GPT-2's table: the character that stands for each byte in a byte-level vocabulary."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printable)
    stand_in = {byte: chr(256 + rank) for rank, byte in enumerate(others)}
    return [stand_in.get(byte, chr(byte)) for byte in range(256)]


def byte_level(merged: Sequence[bytes] = ()) -> Tokenizer:
    """Ids 0 to 255 are the bytes, then come `merged` tokens and one special token."""
    chars = byte_chars()
    tokens = ["".join(chars[byte] for byte in token) for token in merged]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate([*chars, *tokens])}, []))
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


#: Tokens that begin and end amid characters, or hold no valid character at all.
MERGED = [
    *(
        b" caf\xc3",
        b"\xa9!",
        b"\xe4\xbd",
        b"\xbd\xa0",
        b"\xa0\xe5\xa5",
        b"\x9f\x98",
        b"\x80\xf0\x9f",
    ),
    *(b"\xff\xfe", b"\xed\xa0\x80", REPLACEMENT.encode(), "你好".encode(), b" the"),
]
BYTES = byte_level(MERGED)
SPECIAL_ID = BYTES.get_vocab_size() - 1

#: Decoders that treat the first token, or the last, unlike the others.
WORDS = ["a", "##b", "c", ".", "'", "s", "[UNK]", "x</w>", "y</w>", "▁", "▁▁", "▁a", "b▁", "▁é"]
WORD_DECODERS: dict[str, Decoder | None] = {
    "wordpiece": WordPiece(cleanup=True),
    "end-of-word": BPEDecoder("</w>"),
    "metaspace": Metaspace(),
    "sentencepiece": Steps([Replace("▁", " "), Fuse(), Strip(" ", 1, 0)]),
    "none": None,
}


def word_level(decoder: Decoder | None) -> Tokenizer:
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As in Llama 2: ids 0 to 255 are bytes, then come words."""
    words = ["|", "▁x", "▁", "你", "<s>"]
    tokens = [*(f"<0x{byte:02X}>" for byte in range(256)), *words]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, [], byte_fallback=True))
    tokenizer.decoder = Steps([Replace("▁", " "), ByteFallback(), Fuse(), Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


FALLBACK = byte_fallback()
BAR, X, SPACE, NI, START = range(256, 261)


def pushes(decode: Decode, ids: Sequence[int]) -> list[str]:
    """What each push gives; the flush comes last."""
    detokenizer = Detokenizer(decode)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


def joined(decode: Decode, ids: Sequence[int]) -> str:
    return "".join(pushes(decode, ids))


def test_a_character_comes_whole_with_its_last_token() -> None:
    """Bytes of a character give nothing until the last of them."""
    expected = ["a", "", "", "你", "", "", "", "😀", ""]

    assert expected == pushes(BYTES.decode, list("a你😀".encode()))


def test_flush_gives_the_unfinished_tail() -> None:
    """A generation cut amid a character ends in the replacement that `decode` gives."""
    assert ["a", "", "", REPLACEMENT] == pushes(BYTES.decode, list(b"a\xe4\xbd"))


def test_flush_begins_a_new_text() -> None:
    """After a flush the next id is a first one again, and the flush of nothing is empty."""
    decode = word_level(Metaspace()).decode
    detokenizer, word = Detokenizer(decode), WORDS.index("▁a")
    texts = [detokenizer.push(word), detokenizer.push(word), detokenizer.flush()]

    assert ["a", " a", "", "a"] == [*texts, detokenizer.push(word)]


def test_special_tokens_do_not_part_a_character() -> None:
    """Ids that decode to nothing give nothing, even amid a character, and any number of them."""
    first, *rest = "你".encode()
    ids = [SPECIAL_ID, first, *[SPECIAL_ID] * 50, *rest, SPECIAL_ID]

    assert "你" == joined(BYTES.decode, ids)


@check_many
@given(st.lists(st.integers(0, BYTES.get_vocab_size() + 3), max_size=40))
def test_byte_level_text_equals_that_of_all_ids(ids: list[int]) -> None:
    """Any ids, unknown and special ones too: the pieces joined are `decode` of all."""
    assert BYTES.decode(ids) == joined(BYTES.decode, ids)


@check_many
@given(
    st.lists(st.sampled_from([*b"x\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80\xff\xef\xbf", SPECIAL_ID]))
)
def test_broken_characters_are_replaced_as_in_the_text_of_all_ids(ids: list[int]) -> None:
    """Bytes that form characters only now and then: still the same as `decode` of all."""
    assert BYTES.decode(ids) == joined(BYTES.decode, ids)


@check_many
@given(st.text(st.sampled_from("aé你😀 \n"), max_size=20), st.data())
def test_no_half_character_is_ever_given(text: str, data: st.DataObject) -> None:
    """Whole text, tokens cut at any byte: no push has a replacement character."""
    raw = text.encode()
    cuts = data.draw(st.sets(st.integers(1, max(1, len(raw) - 1))))
    tokens = [raw[start:end] for start, end in pairwise([0, *sorted(cuts), len(raw)])]
    merged = sorted({token for token in tokens if len(token) > 1})
    ids = [256 + merged.index(token) if len(token) > 1 else token[0] for token in tokens if token]
    tokenizer = byte_level(merged)

    given_out = pushes(tokenizer.decode, ids)

    assert text == "".join(given_out)
    assert REPLACEMENT not in "".join(given_out)


@pytest.mark.parametrize("name", WORD_DECODERS)
def test_a_text_goes_on_from_another(name: str) -> None:
    """Behind a prompt's ids comes what all ids add to its text: the first word has its space."""
    decode = word_level(WORD_DECODERS[name]).decode

    @check_many
    @given(
        st.lists(st.integers(0, len(WORDS) - 1), max_size=9),
        st.lists(st.integers(0, len(WORDS) - 1), max_size=5),
    )
    def check(before: list[int], ids: list[int]) -> None:
        detokenizer = Detokenizer(decode, before)
        text = "".join(map(detokenizer.push, ids)) + detokenizer.flush()
        assert decode([*before, *ids]) == decode(before) + text

    check()


def test_a_text_of_bytes_goes_on_from_another() -> None:
    """Wherever the end of the prompt that is kept for it begins, no character is cut in two."""
    for before, text in (("Q: 😀", "\n|"), ("你好", "你|"), ("កខគ", "ឃងច"), ("|", "你")):
        ids = list(before.encode())
        detokenizer = Detokenizer(FALLBACK.decode, ids)

        assert text == "".join(map(detokenizer.push, text.encode())) + detokenizer.flush()


@pytest.mark.parametrize("name", WORD_DECODERS)
def test_first_and_last_token_are_as_in_the_text_of_all_ids(name: str) -> None:
    """Spaces that depend on a token's place come out as in `decode` of all."""
    decode = word_level(WORD_DECODERS[name]).decode

    @check_many
    @given(st.lists(st.integers(0, len(WORDS) + 1), max_size=12))
    def check(ids: list[int]) -> None:
        assert decode(ids) == joined(decode, ids)

    check()


@check_many
@given(st.lists(st.sampled_from([*"aé你😀 \n", X, SPACE, NI, START]), max_size=20))
def test_valid_byte_runs_equal_the_text_of_all_ids(parts: list[str | int]) -> None:
    """Byte fallback: characters spelt in byte tokens, in long runs and among words."""
    ids = [i for part in parts for i in ([part] if isinstance(part, int) else part.encode())]

    assert FALLBACK.decode(ids) == joined(FALLBACK.decode, ids)


def test_a_fault_takes_back_no_character_of_its_byte_run() -> None:
    """Byte fallback: `decode` gives up a faulty run as a whole, the stream keeps what it gave."""
    ids = [X, *"你好".encode(), 0xE4, X]

    assert "x" + REPLACEMENT * 7 + " x" == FALLBACK.decode(ids)
    assert "x你好" + REPLACEMENT + " x" == joined(FALLBACK.decode, ids)


def test_a_space_before_a_fault_is_given_once() -> None:
    """Byte fallback: a space as last context, stripped when decoded alone, hides no fault."""
    ids = [X, *"你 ".encode(), 0xEF, X]

    assert "x你 " + REPLACEMENT + " x" == joined(FALLBACK.decode, ids)


FAULTY = [*b"a\n\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80\xff"]


def explains(run: bytes, text: str) -> bool:
    """Whether each byte gave its part of a character or one replacement."""
    if not run or not text:
        return not run and not text
    if text[0] == REPLACEMENT:
        return explains(run[1:], text[1:])
    char = text[0].encode()
    return run.startswith(char) and explains(run[len(char) :], text[1:])


@check_many
@given(st.lists(st.lists(st.sampled_from(FAULTY), max_size=20), max_size=4))
@example([[0xFF, *"😀你\n".encode(), 0xFF]])  # valid, once the fault has left the window
def test_faulty_byte_runs_lose_and_double_no_byte(runs: list[list[int]]) -> None:
    """Byte fallback: faulty runs give a character or a replacement per byte; words are exact."""
    ids = [i for run in runs for i in (*run, BAR)]

    *texts, rest = joined(FALLBACK.decode, ids).split("|")

    assert (len(runs), "") == (len(texts), rest)
    assert [] == [
        pair for pair in zip(runs, texts, strict=True) if not explains(bytes(pair[0]), pair[1])
    ]


@pytest.mark.parametrize(
    ("tokenizer", "token_id"),
    [
        *((BYTES, token_id) for token_id in (0xFF, 0xBD, 0xE4, SPECIAL_ID, ord("a"))),
        *((FALLBACK, token_id) for token_id in (0xFF, 0xE4, 0x20, SPACE, START)),
    ],
)
def test_work_and_delay_are_bounded(tokenizer: Tokenizer, token_id: int) -> None:
    """However long one id goes on: few ids are decoded at once, and few held back."""
    sizes: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        sizes.append(len(ids))
        text: str = tokenizer.decode(ids)
        return text

    *texts, tail = pushes(decode, [token_id] * 200)

    assert tokenizer.decode([token_id] * 200) == "".join(texts) + tail
    assert max(sizes) <= 12
    assert len(sizes) <= 4 * 200
    assert len(tail) <= MAX_HELD_IDS
