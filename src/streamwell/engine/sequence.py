"""The scheduler's unit of work, and the frozen plan and result of one step.

A sequence has no phase. `num_computed_tokens` catches up with `num_tokens`; prefill, chunked
prefill, recompute after preemption and decode differ only in how far apart the two are (the note
at the head of vLLM v1's scheduler).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamwell.core.types import FinishReason, SamplingParams


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and what was generated for it; only the scheduler changes it."""

    request_id: str
    #: Prompt ids, then generated ids.
    token_ids: list[int]
    sampling: SamplingParams
    num_prompt_tokens: int = field(init=False)
    #: Tokens whose keys and values are in the cache.
    num_computed_tokens: int = 0
    #: Cache blocks this sequence holds, in order of position.
    block_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_completion_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The part of a sequence that one step computes: `[start, start + num_tokens)`."""

    seq: Sequence
    start: int
    num_tokens: int

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def is_sampled(self) -> bool:
        """The chunk reaches the last token, so its logits choose the next one."""
        return self.end == self.seq.num_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One forward pass over chunks of several sequences."""

    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a step chose for one sequence: a token, or why there is none."""

    token_id: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one step brought to one request."""

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    error: str | None = None
