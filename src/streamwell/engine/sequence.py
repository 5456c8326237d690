"""The scheduler's unit of work, and the frozen plan and result of one step.

A sequence has no phase. `num_computed_tokens` catches up with `num_tokens`; prefill, chunked
prefill, recompute after preemption and decode differ only in how far apart the two are (the note
at the head of vLLM v1's scheduler). An encoder's input is work of the first chunk: it is computed
when, and only when, a chunk starts at the first token.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field, replace

from streamwell.core.types import FinishReason, SamplingParams
from streamwell.engine.confidence import Confidence
from streamwell.engine.prompt_lookup import PromptLookup


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and what was generated for it; only the scheduler changes its tokens."""

    request_id: str
    #: Prompt ids, then generated ids; of an encoder-decoder, what its decoder reads and says.
    token_ids: list[int]
    sampling: SamplingParams
    #: Lower goes first.
    priority: int = 0
    #: Only sequences of the same salt share cache blocks.
    cache_salt: str = ""
    #: The number of the adapter that it is computed with; 0 is the model itself.
    adapter: int = 0
    #: Of `token_ids`, those that were not generated; all of them if not given.
    num_prompt_tokens: int = -1
    #: What the encoder reads; empty for decoders.
    encoder_ids: tuple[int, ...] = ()
    #: The place in the order of arrival; given by the scheduler.
    arrival: int = 0
    #: Tokens whose keys and values are in the cache.
    num_computed_tokens: int = 0
    #: Of these, those that a draft model has computed too; all, where there is none.
    num_drafted_tokens: int = 0
    #: Cache blocks this sequence holds, in order of position.
    block_ids: list[int] = field(default_factory=list)
    #: Cache blocks of the encoder's output, for cross-attention; all of them, or none.
    cross_block_ids: list[int] = field(default_factory=list)
    #: Prompt tokens that its first admission found in the cache; `None` before that.
    num_cached_tokens: int | None = None
    #: What was left to compute when it was last admitted, the encoder's tokens included.
    num_admitted_tokens: int = 0
    #: When it came, and how long it waited for its first step; told by whoever has a clock.
    added_s: float = 0.0
    queue_s: float | None = None
    #: It has ended or was aborted: what is still computed for it is nobody's.
    is_over: bool = False
    lookup: PromptLookup = field(default_factory=PromptLookup)
    confidence: Confidence = field(default_factory=Confidence)
    #: Keys of the first full blocks, as far as somebody has asked for them.
    _block_keys: list[bytes] = field(default_factory=list)
    #: How often each token was generated, and of how many tokens that is known.
    _token_counts: dict[int, int] = field(default_factory=dict, init=False)
    _num_counted_tokens: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.num_prompt_tokens < 0:
            self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_unencoded_tokens(self) -> int:
        """Tokens that the encoder has to read along with the next chunk."""
        return 0 if self.num_computed_tokens else len(self.encoder_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """All that is to be computed, the encoder's tokens included."""
        num_left = len(self.token_ids) - self.num_computed_tokens
        return num_left if self.num_computed_tokens else num_left + len(self.encoder_ids)

    @property
    def num_completion_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def rank(self) -> tuple[int, int]:
        """Its place among all sequences: by priority, then by arrival; lower goes first."""
        return self.priority, self.arrival

    def token_counts(self, guessed: tuple[int, ...] = ()) -> dict[int, int]:
        """How often each token that is there was generated: of the prompt alone, not at all.

        `guessed` are counted as if they had been.
        """
        counts = self._token_counts
        for place in range(self._num_counted_tokens, self.num_tokens):
            token_id, is_generated = self.token_ids[place], place >= self.num_prompt_tokens
            counts[token_id] = counts.get(token_id, 0) + is_generated
        self._num_counted_tokens = self.num_tokens
        if guessed:
            counts = counts.copy()
            for token_id in guessed:
                counts[token_id] = counts.get(token_id, 0) + 1
        return counts

    def block_keys(self, count: int, block_size: int) -> list[bytes]:
        """Names of the contents of its first `count` blocks, which must be full.

        A key is the SHA-256 of the key before it and the block's token ids; before the first one
        stands the digest of adapter and salt. So equal keys mean equal adapters, equal salts and
        equal tokens, from the sequence's first to the block's last.
        """
        keys = self._block_keys
        salt = f"{self.adapter}:{self.cache_salt}"
        parent = keys[-1] if keys else hashlib.sha256(salt.encode()).digest()
        for start in range(len(keys) * block_size, count * block_size, block_size):
            ids = array("q", self.token_ids[start : start + block_size])
            parent = hashlib.sha256(parent + ids.tobytes()).digest()
            keys.append(parent)
        return keys[:count]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The part of a sequence that one step computes: `[start, start + num_tokens)`.

    Guessed tokens may follow the sequence's own; they are its last ones, and count. The encoder's
    tokens do not: they come before, and on top.
    """

    seq: Sequence
    start: int
    num_tokens: int
    draft_ids: tuple[int, ...] = ()
    #: How many may be guessed; there is room for them.
    num_drafts: int = 0
    #: How many tokens of the sequence, guesses included, a draft model will have computed after
    #: the step; `None` where there is none, which counts as all.
    num_drafted_tokens: int | None = None

    def guessed(self, draft_ids: tuple[int, ...], num_drafted_tokens: int | None = None) -> Chunk:
        """The same chunk with guesses after its tokens."""
        return replace(
            self,
            num_tokens=self.num_tokens + len(draft_ids),
            draft_ids=draft_ids,
            num_drafted_tokens=num_drafted_tokens,
        )

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def token_ids(self) -> list[int]:
        """What is computed, guesses included."""
        return [*self.seq.token_ids[self.start : self.end], *self.draft_ids]

    @property
    def encoder_ids(self) -> tuple[int, ...]:
        """What the encoder reads before the chunk is computed: all of its input, or nothing."""
        return () if self.start else self.seq.encoder_ids

    @property
    def cost(self) -> int:
        """Tokens that it takes from a step's budget."""
        return self.num_tokens + len(self.encoder_ids)

    @property
    def is_decode(self) -> bool:
        """It computes the one token that was left or is to come, and perhaps guesses after it."""
        return self.start + 1 >= len(self.seq.token_ids) and not self.encoder_ids

    @property
    def is_sampled(self) -> bool:
        """The chunk reaches the last token, so its logits choose the next one."""
        return self.end >= self.seq.num_tokens

    @property
    def num_sampled(self) -> int:
        """How many of its last positions choose a token: that of the last token, and the guesses'.

        Zero if the chunk does not reach the last token.
        """
        return 1 + len(self.draft_ids) if self.is_sampled else 0

    def accepted(self, sampled: tuple[Sampled, ...]) -> list[int]:
        """The tokens that hold: the first, and each one that was chosen after a right guess.

        A draw depends on its index and its logits alone, so these are the tokens that would have
        been chosen one by one. What could not be sampled ends them: it may be tried again.
        """
        token_ids = [sampled[0].token_id]
        for draft_id, after in zip(self.draft_ids, sampled[1:], strict=True):
            if draft_id != token_ids[-1] or after.error is not None:
                break
            token_ids.append(after.token_id)
        return token_ids


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One forward pass over chunks of several sequences."""

    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of all chunks, the encoder's included."""
        return sum(chunk.cost for chunk in self.chunks)

    @property
    def num_decodes(self) -> int:
        """Chunks that compute the one token that was left, and perhaps guesses after it."""
        return sum(chunk.is_decode for chunk in self.chunks)

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens of all other chunks."""
        return sum(chunk.cost for chunk in self.chunks if not chunk.is_decode)

    @property
    def resumes(self) -> bool:
        """It computes anew what a sequence needs that has been heard from already."""
        return any(c.seq.num_completion_tokens and not c.is_decode for c in self.chunks)


#: Who draws from some of the likeliest tokens has so many of them looked at first.
NUM_LIKELIEST = 256


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a step chose at one position: a token, or why there is none."""

    token_id: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one step brought to one request."""

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    error: str | None = None
    #: Prompt tokens that came from the prefix cache; told once, with the first output.
    num_cached_tokens: int = 0
    #: Seconds that it waited for its first step; told once, too.
    queue_s: float = 0.0
