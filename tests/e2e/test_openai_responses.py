"""The `openai` package, unchanged: responses, conversations and stored completions."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from harness import ServerProcess, eventually

pytestmark = pytest.mark.slow

MODEL = "brooklet"
MESSAGES = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def client(scripted: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_a_response_is_answered_whole(client: openai.OpenAI) -> None:
    """`output_text` is the answer, and fetching it again gives the same object."""
    response = client.responses.create(model=MODEL, input="Hello!", max_output_tokens=5)

    assert response.output_text
    assert ("incomplete", "max_output_tokens") == (
        response.status,
        response.incomplete_details and response.incomplete_details.reason,
    )
    assert response.usage is not None
    assert 5 == response.usage.output_tokens
    assert response == client.responses.retrieve(response.id)


def test_a_response_streams_and_goes_on_after_any_event(client: openai.OpenAI) -> None:
    """The events are the client's own classes; a second stream starts after a number."""
    with client.responses.create(
        model=MODEL, input="Hello!", max_output_tokens=5, stream=True
    ) as stream:
        events = list(stream)
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    response = events[-1].response  # type: ignore[union-attr]

    assert list(range(len(events))) == [event.sequence_number for event in events]
    assert text == response.output_text
    for number in (0, 3, 5, len(events) - 2):
        with client.responses.retrieve(response.id, stream=True, starting_after=number) as rest:
            assert events[number + 1 :] == list(rest)


def test_the_clients_own_accumulator_understands_the_stream(client: openai.OpenAI) -> None:
    """`responses.stream` checks identities and order, and gives the final response."""
    options = {"model": MODEL, "input": "Hello!", "max_output_tokens": 9}
    whole = client.responses.create(**options, extra_body={"seed": 1}).output_text
    extra = {"seed": 1, "stop": whole[3:5]}
    with client.responses.stream(**options, extra_body=extra) as stream:
        response = stream.get_final_response()
    with client.responses.stream(response_id=response.id, starting_after=5) as stream:
        again = stream.get_final_response()

    assert ("completed", whole[:3]) == (response.status, response.output_text)
    assert whole[:3] == again.output_text


def test_a_response_in_the_background_is_polled_and_cancelled(client: openai.OpenAI) -> None:
    """It is there at once, goes on alone, ends when it is told to, and is gone when deleted."""
    response = client.responses.create(model=MODEL, input="Hello!", background=True)
    assert "in_progress" == response.status
    eventually(lambda: client.responses.retrieve(response.id).output_text, "it has text")
    cancelled = client.responses.cancel(response.id)
    assert "cancelled" == cancelled.status == client.responses.cancel(response.id).status
    client.responses.delete(response.id)

    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_response_goes_on_from_another(client: openai.OpenAI) -> None:
    """What was said before counts as input, and is listed with it."""
    first = client.responses.create(model=MODEL, input="One", max_output_tokens=3)
    second = client.responses.create(
        model=MODEL, input="Two", previous_response_id=first.id, max_output_tokens=3
    )
    items = list(client.responses.input_items.list(second.id, order="asc", limit=1))

    assert ["user", "assistant", "user"] == [item.role for item in items]  # type: ignore[union-attr]
    assert first.output_text == items[1].content[0].text  # type: ignore[union-attr]
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


def test_conversations_keep_what_is_said(client: openai.OpenAI) -> None:
    """Created, answered in, listed page by page, changed, emptied, deleted."""
    conversation = client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "One"}], metadata={"a": "1"}
    )
    response = client.responses.create(
        model=MODEL, input="Two", conversation=conversation.id, max_output_tokens=3
    )
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=1))

    assert ["One", "Two", response.output_text] == [item.content[0].text for item in items]  # type: ignore[union-attr]
    assert items[2].id == response.output[0].id
    assert items[0] == client.conversations.items.retrieve(
        items[0].id or "", conversation_id=conversation.id
    )
    client.conversations.items.delete(items[0].id or "", conversation_id=conversation.id)
    assert 2 == len(list(client.conversations.items.list(conversation.id)))
    assert conversation == client.conversations.retrieve(conversation.id)
    updated = client.conversations.update(conversation.id, metadata={"b": "2"})
    assert {"b": "2"} == updated.metadata
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_stored_completions_are_managed(client: openai.OpenAI) -> None:
    """List, retrieve, update, messages and delete, with the client's own pages."""
    completions = client.chat.completions
    made = [
        completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=2, store=True, metadata={"n": str(at)}
        )
        for at in range(3)
    ]
    assert {one.id for one in made} <= {one.id for one in completions.list(limit=1)}
    assert [made[1]] == list(completions.list(metadata={"n": "1"}))
    assert made[1] == completions.retrieve(made[1].id)
    assert ["Hello!"] == [m.content for m in completions.messages.list(made[1].id)]
    updated = completions.update(made[1].id, metadata={"n": "x"})
    assert {"n": "x"} == updated.metadata  # type: ignore[attr-defined]
    assert [made[1].id] == [one.id for one in completions.list(metadata={"n": "x"})]
    assert completions.delete(made[1].id).deleted
    with pytest.raises(openai.NotFoundError):
        completions.retrieve(made[1].id)
