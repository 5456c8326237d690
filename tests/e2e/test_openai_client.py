"""The `openai` package, unchanged, against a real server."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import openai
import pytest
from harness import ServerProcess, StartServer
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

pytestmark = pytest.mark.slow

MODEL = "brooklet"
MESSAGES = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def client(brooklet: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{brooklet.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_chat_is_answered_whole(client: openai.OpenAI) -> None:
    """A chat completion has an assistant's message, a reason and a usage that adds up."""
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=300)
    choice, usage = answer.choices[0], answer.usage

    assert ("chat.completion", MODEL) == (answer.object, answer.model)
    assert ("assistant", "stop") == (choice.message.role, choice.finish_reason)
    assert choice.message.content
    assert usage is not None
    assert usage.prompt_tokens + usage.completion_tokens == usage.total_tokens
    assert answer._request_id


def _chunks(client: openai.OpenAI, **options: object) -> list[ChatCompletionChunk]:
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, seed=1, temperature=0, **options
    )
    with stream:
        return list(stream)


def _counts(usage: CompletionUsage | None) -> tuple[int, int]:
    """What does not depend on what came before: all but the cached tokens."""
    assert usage is not None
    return usage.prompt_tokens, usage.completion_tokens


def test_chat_streams_role_then_text_then_reason(client: openai.OpenAI) -> None:
    """One role chunk, deltas, one chunk with the reason and no text; one id, one time.

    A delta is text or, where a space waits for what follows it, nothing at all.
    """
    chunks = _chunks(client, max_tokens=300)
    first, *deltas, last = chunks
    said = [chunk.choices[0].delta.to_dict() for chunk in deltas]

    assert ("assistant", "") == (first.choices[0].delta.role, first.choices[0].delta.content)
    assert all(delta == {} or (delta.keys() == {"content"} and delta["content"]) for delta in said)
    assert any(said)
    assert [None] * (1 + len(deltas)) + ["stop"] == [c.choices[0].finish_reason for c in chunks]
    assert last.choices[0].delta.content is None
    assert 1 == len({(c.id, c.created, c.model, c.object) for c in chunks})
    assert all("usage" not in chunk.model_fields_set for chunk in chunks)


@pytest.mark.parametrize(("max_tokens", "reason"), [(3, "length"), (300, "stop")])
def test_usage_comes_last_and_only_when_asked_for(
    client: openai.OpenAI, max_tokens: int, reason: str
) -> None:
    """`include_usage`: `usage: null` in every chunk but a last one, which has no choices."""
    *chunks, last = _chunks(client, max_tokens=max_tokens, stream_options={"include_usage": True})

    assert reason == chunks[-1].choices[0].finish_reason
    assert all("usage" in c.model_fields_set and c.usage is None for c in chunks)
    assert [] == last.choices
    assert last.usage is not None
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens
    if reason == "length":
        assert max_tokens == last.usage.completion_tokens


def test_a_stream_and_a_whole_answer_are_the_same_text(client: openai.OpenAI) -> None:
    """With the same seed, the joined deltas equal the message, and the counts are the same."""
    options = {"temperature": 0.8, "seed": 5, "max_tokens": 60}
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, **options)
    with client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    ) as stream:
        *chunks, last = list(stream)

    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert whole.choices[0].message.content == streamed
    assert _counts(whole.usage) == _counts(last.usage)


def test_completions_are_answered_whole_and_streamed(client: openai.OpenAI) -> None:
    """A text completion gives 16 tokens unless told otherwise, streamed or not."""
    options = {"model": MODEL, "prompt": "Once upon a time", "temperature": 0, "seed": 1}
    options |= {"extra_body": {"ignore_eos": True}}
    whole = client.completions.create(**options)
    with client.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    ) as stream:
        *chunks, last = list(stream)

    assert ("text_completion", "length") == (whole.object, whole.choices[0].finish_reason)
    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in chunks)
    assert "length" == chunks[-1].choices[0].finish_reason
    assert _counts(whole.usage) == _counts(last.usage)
    assert last.usage is not None
    assert 16 == last.usage.completion_tokens


def test_errors_arrive_as_the_clients_own(client: openai.OpenAI) -> None:
    """The client raises its classes, with our `param` and `code`."""
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=-1)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)

    assert "temperature" == bad.value.param
    assert "model_not_found" == unknown.value.code


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    """The list has the served model; asking for it by name gives the same card."""
    cards = list(client.models.list())

    assert [MODEL] == [card.id for card in cards]
    assert cards[0] == client.models.retrieve(MODEL)


def test_a_silent_stream_goes_on(start_server: StartServer) -> None:
    """Comments between its frames are nothing to the client."""
    flags = ("--scripted-step-s", "0.2", "--sse-ping-s", "0.02")
    server = start_server("--engine", "scripted", *flags)
    server.wait_until_ready()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        chunks = _chunks(client, max_tokens=3)
        events = list(client.responses.create(input="Hello!", max_output_tokens=16, stream=True))

    assert "length" == chunks[-1].choices[0].finish_reason
    assert events[-1].type in ("response.completed", "response.incomplete")


def test_a_shutdown_is_told(start_server: StartServer) -> None:
    """A stream that a shutdown cuts ends with the error that says so."""
    flags = ("--scripted-step-s", "3600", "--drain-s", "0.1")
    server = start_server("--engine", "scripted", *flags)
    server.wait_until_ready()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        next(stream)
        server.signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="shutting down"):
            next(stream)
