"""One choice: ids to text, stop strings over tokens, held tails, and exactly one last word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwell.core.engine_state import EngineInfo, EngineStats, EngineStatus
from streamwell.core.errors import EngineDied, EngineError, SequenceFailed
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams, TokenDelta
from streamwell.service.generation import Finished, TextDelta, TextPipeline, generate_text

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
#: An id that is a special token: it has no text.
SILENT = 1


def decode(ids: Sequence[int]) -> str:
    """Byte-level decoding: an id is a byte."""
    return bytes(i for i in ids if i != SILENT).decode(errors="replace")


class Deltas:
    """An engine that sends the deltas it is given, and tells how its stream was left."""

    def __init__(self, deltas: Sequence[TokenDelta], error: EngineError | None = None) -> None:
        self._deltas = deltas
        self._error = error
        self.num_taken = 0
        self.is_closed = False

    async def generate(self, _request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        try:
            for delta in self._deltas:
                self.num_taken += 1
                yield delta
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True

    def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def ready(self) -> EngineInfo:
        raise NotImplementedError

    def status(self) -> EngineStatus:
        raise NotImplementedError

    def stats(self) -> EngineStats:
        raise NotImplementedError


def deltas_of(text: bytes, reason: FinishReason | None, size: int = 1) -> list[TokenDelta]:
    """The bytes as deltas of `size` tokens, the last one with the reason."""
    cuts = range(0, len(text), size)
    deltas = [TokenDelta(tuple(text[at : at + size])) for at in cuts]
    return [*deltas[:-1], TokenDelta(deltas[-1].token_ids, reason)]


def generate(
    engine: Deltas, stop: tuple[str, ...] = (), min_tokens: int = 0
) -> list[TextDelta | Finished]:
    request = GenerateRequest(
        request_id="r",
        prompt_ids=(1,),
        sampling=SamplingParams(max_tokens=100, min_tokens=min_tokens),
    )

    async def main() -> list[TextDelta | Finished]:
        return [
            item
            async for item in generate_text(engine, request, TextPipeline(decode, stop, min_tokens))
        ]

    items = asyncio.run(main())
    assert engine.is_closed
    return items


async def attempt(engine: Deltas, request: GenerateRequest, pipeline: TextPipeline) -> Any:  # noqa: ANN401
    """The last item, or the error that the attempt ended with."""
    try:
        return [item async for item in generate_text(engine, request, pipeline)][-1]
    except EngineError as error:
        return error


def outcome(items: list[TextDelta | Finished]) -> tuple[str, int, FinishReason]:
    """The text, the number of tokens and the reason; checks the shape on the way."""
    *deltas, last = items
    assert isinstance(last, Finished)
    assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    return text, sum(len(item.token_ids) for item in items), last.reason


TABLE = [
    # text, stop strings, reason of the engine, expected text, tokens, reason
    (b"hello", (), LENGTH, "hello", 5, LENGTH),
    (b"hello", (), STOP, "hello", 5, STOP),
    (b"hello", ("l",), LENGTH, "he", 3, STOP),
    (b"hello", ("ll",), LENGTH, "he", 4, STOP),
    (b"hello", ("h",), LENGTH, "", 1, STOP),
    (b"hello", ("o",), LENGTH, "hell", 5, STOP),  # with the last token: not `length`
    (b"hello", ("lo!",), LENGTH, "hello", 5, LENGTH),  # the held tail is flushed
    (b"hello", ("lx", "ly"), LENGTH, "hello", 5, LENGTH),
    (b"ababac", ("abac",), LENGTH, "ab", 6, STOP),  # a beginning within a beginning
    (b"a\nUser: b", ("\nUser:", "\n\n"), LENGTH, "a", 7, STOP),
    ("é!".encode(), ("é",), LENGTH, "", 2, STOP),  # a character of two tokens
    ("né".encode()[:-1], (), LENGTH, "n\N{REPLACEMENT CHARACTER}", 2, LENGTH),
    ("é\N{MUSICAL SYMBOL G CLEF}".encode(), (), LENGTH, "é\N{MUSICAL SYMBOL G CLEF}", 6, LENGTH),
    (b"ab\x01", (), STOP, "ab", 3, STOP),  # an end token counts and is not seen
    (b"\x01", (), STOP, "", 1, STOP),
]


@pytest.mark.parametrize(("sent", "stop", "reason", "text", "num_tokens", "expected"), TABLE)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_text_tokens_and_reason(
    sent: bytes,
    stop: tuple[str, ...],
    reason: FinishReason,
    text: str,
    num_tokens: int,
    expected: FinishReason,
    size: int,
) -> None:
    """However the tokens come merged, the outcome is the same; those after a stop do not count."""
    items = generate(Deltas(deltas_of(sent, reason, size)), stop)

    assert (text, num_tokens, expected) == outcome(items)


def test_a_stop_string_ends_the_engines_work() -> None:
    """Nothing more is taken from the engine once the stop string is complete."""
    engine = Deltas(deltas_of(b"one.two.three", LENGTH))
    generate(engine, (".",))

    assert 4 == engine.num_taken


def test_text_is_not_held_longer_than_needed() -> None:
    """Only a tail that may become a stop string is held back, and no character is cut."""
    items = generate(Deltas(deltas_of("aé<b".encode(), LENGTH)), ("<|end|>",))
    texts = [item.text for item in items if isinstance(item, TextDelta)]

    assert ["a", "é", "<b"] == texts


def test_ids_travel_with_their_text() -> None:
    """Each delta carries the ids since the last one; ids without text come with the last word."""
    items = generate(Deltas(deltas_of("é".encode() + b"a\x01", STOP)))

    assert [
        TextDelta("é", (0xC3, 0xA9)),
        TextDelta("a", (ord("a"),)),
        Finished(STOP, (SILENT,)),
    ] == items


@pytest.mark.parametrize(
    ("min_tokens", "stop", "text"),
    [
        (0, "a", ""),
        (1, "a", ""),
        (2, "b", "a"),
        (2, "a", "ab"),
        (5, "a", "abab"),
        (5, "c", "ababab"),
        (2, "ab", "a"),
        (3, "ab", "ab"),
    ],
)
def test_stop_strings_wait_for_min_tokens(min_tokens: int, stop: str, text: str) -> None:
    """Before so many tokens are there, stop strings are text like any other."""
    items = generate(Deltas(deltas_of(b"ababab", LENGTH)), (stop,), min_tokens)

    assert text == outcome(items)[0]


@pytest.mark.parametrize("error", [EngineDied(), SequenceFailed("x")], ids=repr)
def test_an_engines_error_comes_after_the_text(error: EngineError) -> None:
    """What was generated is given first; then the error, and no last word."""
    engine = Deltas([TokenDelta(tuple(b"ab"))], error)
    request = GenerateRequest(
        request_id="r", prompt_ids=(1,), sampling=SamplingParams(max_tokens=9)
    )

    items = []

    async def main() -> None:
        async for item in generate_text(engine, request, TextPipeline(decode, (), 0)):
            items.append(item)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(type(error)) as raised:
        asyncio.run(main())

    assert error is raised.value
    assert [TextDelta("ab", tuple(b"ab"))] == items
    assert engine.is_closed


def test_an_engine_that_just_stops_has_died() -> None:
    """A stream without a reason is no end."""
    with pytest.raises(EngineDied):
        generate(Deltas([TokenDelta((97,))]))


def test_closing_early_closes_the_engines_stream() -> None:
    """The engine's generator is the lease: it is closed with ours."""
    engine = Deltas(deltas_of(b"hello", LENGTH))
    request = GenerateRequest(
        request_id="r", prompt_ids=(1,), sampling=SamplingParams(max_tokens=9)
    )

    async def main() -> None:
        stream = generate_text(engine, request, TextPipeline(decode, (), 0))
        assert TextDelta("h", (ord("h"),)) == await anext(stream)
        await stream.aclose()
        assert engine.is_closed

    asyncio.run(main())


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    text=st.text(alphabet="abé\N{MUSICAL SYMBOL G CLEF}", min_size=1, max_size=12),
    stop=st.lists(st.text(alphabet="abé", min_size=1, max_size=3), max_size=3).map(tuple),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_the_outcome_does_not_depend_on_merging(
    text: str, stop: tuple[str, ...], sizes: tuple[int, int]
) -> None:
    """Whatever the text and the stops: two ways of cutting give one outcome, the expected text."""
    first, second = (
        outcome(generate(Deltas(deltas_of(text.encode(), LENGTH, size)), stop)) for size in sizes
    )
    # the stop that is complete first; of several complete at once, the longest
    ends = [(text.index(s) + len(s), -len(s)) for s in stop if s in text]
    end, minus_length = min(ends, default=(len(text), 0))

    assert first == second
    assert text[: end + minus_length] == first[0]
    assert (STOP if ends else LENGTH) == first[2]


def test_cached_tokens_come_with_the_last_word() -> None:
    """What the engine told of its cache, with whichever delta, is in `Finished`."""
    deltas = [TokenDelta((65,), None, 16), TokenDelta((66,), LENGTH)]

    assert Finished(LENGTH, (), 16) == generate(Deltas(deltas))[-1]


@pytest.mark.parametrize("num_found", [0, 32])
def test_cached_tokens_are_those_of_the_beginning(num_found: int) -> None:
    """Of a run that is taken up again, what the engine finds of it in its cache is its own."""
    request = GenerateRequest(
        request_id="r", prompt_ids=(1,), sampling=SamplingParams(max_tokens=100)
    )
    pipeline = TextPipeline(decode, (), 0)

    async def main() -> tuple[Any, Any]:
        first = Deltas([TokenDelta((65,), None, 16)], EngineDied())
        second = Deltas([TokenDelta((66,), LENGTH, num_found)])
        return await attempt(first, request, pipeline), await attempt(second, request, pipeline)

    died, last = asyncio.run(main())
    assert isinstance(died, EngineDied)
    assert Finished(LENGTH, (), 16) == last
