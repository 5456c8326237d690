"""The nouns of Streamwell: requests, deltas, events and states, as frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from streamwell.core.messages import AnswerPart, ChatOptions, PartKind
from streamwell.core.messages import Message as Message


class FinishReason(StrEnum):
    """Why one choice of a run ended."""

    STOP = "stop"
    #: It stopped, and calls tools.
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen; complete and clamped, nothing left to default."""

    max_tokens: int
    #: Key of the counter-based random numbers, together with the token's index.
    seed: int = 0
    #: 0 means greedy.
    temperature: float = 1.0
    top_p: float = 1.0
    #: 0 means off.
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    @property
    def has_penalties(self) -> bool:
        """The next token depends on which tokens came before, not only on the model."""
        has_additive = bool(self.presence_penalty or self.frequency_penalty)
        return has_additive or self.repetition_penalty != 1.0

    @property
    def is_cut(self) -> bool:
        """Only some of the likeliest tokens can be drawn."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """All that an engine may know of a request: ids in, ids out."""

    #: Never given twice: what an engine says late must not be taken for a later request's.
    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    #: Lower runs earlier.
    priority: int = 0
    #: Only requests of the same salt share what is cached of their prompts.
    cache_salt: str = ""
    #: What was generated before, when a run goes on: counted as completion, never yielded again.
    completion_ids: tuple[int, ...] = ()
    #: The name of a LoRA adapter that the engine has; empty for the model itself.
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """Tokens that an engine produced; the last delta of a request carries the reason."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    #: Told once, with the first tokens: prompt tokens in a cache, and seconds before a place.
    num_cached_tokens: int = 0
    queue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a run; a prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    #: Of the prompt tokens, those that were not computed again for the first choice.
    cached_tokens: int = 0
    #: Of the completion tokens, those of reasoning, as far as it is told from the rest.
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """What the caller asked for; `None` takes the model's default."""

    max_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()


class RunKind(StrEnum):
    """What a run answers."""

    CHAT = "chatcmpl"
    COMPLETION = "cmpl"
    RESPONSE = "resp"
    #: Streamwell's own: `/v1/runs` and `/v1/stream`.
    TEXT = "run"

    @property
    def id_prefix(self) -> str:
        """What its ids begin with, as OpenAI's do: some clients know a response by it."""
        return f"{self.value}_" if self is RunKind.RESPONSE else f"{self.value}-"


#: A prompt as the caller gave it: a conversation, a text, or token ids.
Prompt = tuple[Message, ...] | str | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What a run promises beside its text; part of its `RunSpec` as it came with the request."""

    #: It was asked to go on when nobody reads it.
    background: bool = False
    #: `True`: it is listed. `False`: it is deleted soon after its end. `None`: neither.
    store: bool | None = None
    #: The caller's name for the request: the same one never generates twice. Empty: none.
    idempotency_key: str = ""
    #: SHA-256 of the request, in hexadecimal; tells a repeated request from another one.
    fingerprint: str = ""
    #: Its stream ends with the token counts.
    include_usage: bool = False
    #: The conversation that it answers, as it was given; instructions stand apart.
    messages: tuple[Message, ...] = ()
    instructions: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    #: The run that it continues, and the conversation that it belongs to. Empty: none.
    previous_run_id: str = ""
    conversation_id: str = ""
    #: The item of the conversation that it comes after, see `ConversationItem.previous_id`; in a
    #: request, `None` is the last one.
    previous_item_id: str | None = None

    @property
    def needs_no_reader(self) -> bool:
        """It goes on when nobody reads it: it was asked to, or a conversation waits for it."""
        return self.background or bool(self.conversation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A parsed request for one run; wire models end where this begins."""

    kind: RunKind
    model: str
    prompts: tuple[Prompt, ...]
    #: What the caller calls the prompt; errors name it.
    prompt_param: str = "prompt"
    #: Choices per prompt; choice `index` belongs to prompt `index // num_choices`.
    num_choices: int = 1
    options: SamplingOptions = field(default_factory=SamplingOptions)
    chat: ChatOptions = field(default_factory=ChatOptions)
    stop: tuple[str, ...] = ()
    tenant: str = ""
    #: Lower runs earlier.
    priority: int = 0
    terms: RunTerms = field(default_factory=RunTerms)
    #: To a model without a chat template, messages are one text, and not refused.
    joins_messages: bool = False
    #: Of a longer prompt only its end is read, so many tokens of it; `None`: it is refused.
    truncate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """An accepted run: enough to generate it, and to generate it again from its log.

    Stores keep it encoded by field name: a field that is added later, here or in
    `SamplingParams`, needs a default.
    """

    run_id: str
    kind: RunKind
    tenant: str
    model: str
    #: Seconds since the epoch.
    created_s: int
    prompts: tuple[tuple[int, ...], ...]
    num_choices: int
    sampling: SamplingParams
    stop: tuple[str, ...]
    priority: int = 0
    terms: RunTerms = field(default_factory=RunTerms)
    #: What its answers are split into beside content, if the model's folder says how.
    part_kinds: tuple[PartKind, ...] = ()
    #: Answers are the rest of the prompt's own text, and not somebody's reply to it.
    continues_text: bool = False

    @property
    def total_choices(self) -> int:
        return len(self.prompts) * self.num_choices


class EventKind(StrEnum):
    """What an event of a run's log says."""

    #: A choice begins; written when the run is accepted, before any token.
    START = "start"
    #: Text of a choice, with the token ids behind it.
    DELTA = "delta"
    #: A choice has ended; carries its reason and the ids that gave no text.
    FINISH = "finish"
    #: The run has ended; the last event, exactly one, with usage or an error.
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One entry of a run's log; `(run_id, seq)` is unique and `seq` dense from 0."""

    run_id: str
    seq: int
    kind: EventKind
    index: int = 0
    token_ids: tuple[int, ...] = ()
    text: str = ""
    #: What the text, with some of earlier events, adds to the answer; `None`: it is all content.
    parts: tuple[AnswerPart, ...] | None = None
    finish_reason: FinishReason | None = None
    #: Of an `END` that of the run; of a `FINISH` what its choice adds to it and no event shows.
    usage: Usage | None = None
    error: str | None = None
    #: What kind of error, for programs: `engine_error`, `shutting_down`, `store_failed`.
    error_code: str | None = None

    @property
    def answer_parts(self) -> tuple[AnswerPart, ...]:
        """What it adds to its choice's answer."""
        if self.parts is not None:
            return self.parts
        return (AnswerPart(PartKind.CONTENT, self.text),) if self.text else ()


def end_of(events: Sequence[RunEvent]) -> RunEvent | None:
    """The end of a run, if these events go on to it."""
    return events[-1] if events and events[-1].kind is EventKind.END else None
