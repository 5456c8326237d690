"""What an encoder-decoder is asked: which text is its input, how long both sides may be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from streamwell.core.engine_state import EngineInfo
from streamwell.core.errors import ContextLengthExceeded, InvalidRequest
from streamwell.core.messages import ChatOptions
from streamwell.core.types import Message, Prompt, RunKind, RunRequest, RunSpec, SamplingOptions
from streamwell.service.acceptance import accept, engine_request

#: Answers of up to 18 tokens after the two that they begin with; inputs of up to 8.
INFO = EngineInfo(
    max_model_len=20,
    vocab_size=300,
    num_blocks=9,
    block_size=4,
    dtype="float32",
    device="cpu",
    start_ids=(2, 0),
    max_input_len=8,
)


@dataclass
class Letters:
    """A token per letter; with a template, a conversation is all of its texts."""

    has_chat_template: bool = False
    vocab_size: int = 300

    def encode_chat(self, messages: Sequence[Message], _options: ChatOptions) -> list[int]:
        return self.encode_text("".join(message.content for message in messages))

    def encode_text(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@dataclass
class Model:
    """As much of a served model as acceptance asks for."""

    encoder: Letters
    names: tuple[str, ...] = ("m",)
    default_sampling: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self.default_sampling = self.default_sampling or {}

    async def wake(self) -> None:
        """It is awake."""

    def require(self) -> tuple[Letters, EngineInfo]:
        return self.encoder, INFO


def accepted(prompt: Prompt, *, kind: RunKind = RunKind.CHAT, **options: object) -> RunSpec:
    has_template = bool(options.pop("has_chat_template", False))
    request = RunRequest(
        kind=kind,
        model="m",
        prompts=(prompt,),
        prompt_param="messages",
        options=SamplingOptions(**options),  # type: ignore[arg-type]
    )
    return asyncio.run(accept(request, Model(Letters(has_template))))  # type: ignore[arg-type]


TALK = (
    Message("system", "be brief"),
    Message("user", "one"),
    Message("assistant", "two"),
    Message("user", "three"),
    Message("assistant", "four"),
)


@pytest.mark.parametrize(
    ("messages", "expected"), [(TALK, "three"), (TALK[:2], "one"), (TALK[3:4], "three")]
)
def test_the_last_user_message_is_what_it_reads(
    messages: tuple[Message, ...], expected: str
) -> None:
    """All else is left out, however long it is."""
    long = Message("user", "x" * 1000)

    assert (tuple(map(ord, expected)),) == accepted((long, *messages)).prompts


@pytest.mark.parametrize("name", ["tools", "chat_template_kwargs"])
def test_what_only_a_template_can_show_is_refused(name: str) -> None:
    """A model without one would never see it."""
    tools = ChatOptions(tools="[{}]") if name == "tools" else ChatOptions(template_kwargs="{}")
    request = RunRequest(
        kind=RunKind.CHAT, model="m", prompts=(TALK,), prompt_param="messages", chat=tools
    )
    with pytest.raises(InvalidRequest, match="no chat template") as refused:
        asyncio.run(accept(request, Model(Letters())))  # type: ignore[arg-type]
    assert name == refused.value.param


def test_a_template_has_its_way() -> None:
    """A model with a chat template reads what that makes of the conversation."""
    messages = (Message("system", "a"), Message("user", "b"))

    assert (tuple(map(ord, "ab")),) == accepted(messages, has_chat_template=True).prompts


@pytest.mark.parametrize("messages", [TALK[:1], TALK[2:3]])
def test_without_a_user_message_there_is_nothing_to_read(messages: tuple[Message, ...]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest, match="last user message") as caught:
        accepted(messages)
    assert "messages" == caught.value.param


@pytest.mark.parametrize(("prompt", "is_fine"), [("x" * 8, True), ("x" * 9, False), ("", False)])
def test_an_input_may_be_as_long_as_the_encoder_reads(prompt: str, is_fine: bool) -> None:
    """It takes no room from the answer; an empty one is refused."""
    if is_fine:
        assert 1 == len(accepted(prompt, kind=RunKind.TEXT).prompts)
    else:
        with pytest.raises(InvalidRequest) as caught:
            accepted(prompt, kind=RunKind.TEXT)
        assert bool(prompt) == isinstance(caught.value, ContextLengthExceeded)
        assert "messages" == caught.value.param


@pytest.mark.parametrize(("asked", "expected"), [(None, 18), (10**6, 18), (5, 5)])
def test_an_answer_may_fill_the_decoder(asked: int | None, expected: int) -> None:
    """Whatever the input's length, all but what answers begin with is there for the answer."""
    spec = accepted("x" * 8, kind=RunKind.TEXT, max_tokens=asked)

    request = engine_request(spec, 0, INFO)

    assert (expected, 8) == (request.sampling.max_tokens, len(request.prompt_ids))


def test_a_decoders_answer_has_what_its_prompt_leaves() -> None:
    """The same question about a decoder."""
    decoder = replace(INFO, start_ids=(), max_input_len=None)

    assert (19, 12) == (decoder.max_prompt_len, decoder.max_new_tokens(8))


@pytest.mark.parametrize(("asked", "expected"), [(None, 0.0), (0.7, 0.7)])
def test_answers_are_greedy_unless_asked_otherwise(asked: float | None, expected: float) -> None:
    """Translations and summaries are to be right, not surprising."""
    assert expected == accepted("x", kind=RunKind.TEXT, temperature=asked).sampling.temperature
