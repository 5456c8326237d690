"""Decides what the next step computes, and takes in what it brought. Pure: no torch, no clock.

Rules:
1. Sequences are ranked by priority, then by arrival. Who runs goes on before who waits; who waits
   is admitted by rank, when there is a place and all of its tokens find room.
2. When blocks run out, the running sequence of the lowest rank is preempted: its blocks are given
   back and its tokens are computed again later. The first in rank always goes on.
3. Whoever runs gets a share of the step's token budget (`budget`): decodes first, then prefills,
   the short before the long, but a part for the first in rank.
4. Whoever is admitted takes over the longest prefix of its tokens that is in the cache, but never
   its last token: at least one must be computed to have logits. A full block can be taken over
   once its tokens are computed. A sequence whose next block is being computed by another, which
   goes before it by rule 3, waits for that one; so equal prompts are computed once.
5. A sequence that decodes may have the tokens after its last one guessed (`drafter`), with the
   budget and the room that nobody else wants in this step, as far as its `confidence` goes. A
   guess is computed along with the last token; it counts as computed only if it is what was
   sampled before it.
6. An encoder's input is computed along with its sequence's first tokens. Preemption drops that too.
7. Every sequence that was added ends with exactly one output that carries a reason or an error,
   unless it was aborted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping

from streamwell.core.types import FinishReason
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.budget import prefill_order, share_budget
from streamwell.engine.confidence import LEAST_CHANCE
from streamwell.engine.holdings import Holdings
from streamwell.engine.lookahead import plan_ahead
from streamwell.engine.pace import Demand
from streamwell.engine.sequence import Chunk, Sampled, Sequence, SequenceOutput, Step


class Scheduler:
    """Owns all sequences of an engine, from `add` to their last word."""

    def __init__(
        self,
        pool: BlockPool,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        eos_token_ids: frozenset[int],
        max_input_len: int = 0,
        enable_prefix_caching: bool = True,
        num_speculative_tokens: int = 0,
    ) -> None:
        """`max_input_len` is how much an encoder reads; 0 is for decoders, which have none.

        `num_speculative_tokens` is how many a drafter may guess per sequence and step.
        """
        if pool.num_blocks < pool.blocks_for(max_model_len) + pool.blocks_for(max_input_len):
            raise ValueError("the KV cache cannot hold one sequence of max_model_len tokens")
        if max_num_batched_tokens < max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        self._holdings = Holdings(pool, enable_prefix_caching=enable_prefix_caching)
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_model_len = max_model_len
        self._eos_token_ids = eos_token_ids
        self._max_input_len = max_input_len
        self._num_speculative_tokens = num_speculative_tokens
        #: Both by rank.
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._num_arrived = 0
        self.num_preemptions = 0
        #: Tokens that were guessed, and the guesses that were right.
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def demand(self) -> Demand:
        """What there is to compute; how long prompts are is told of those that are admitted."""
        prompts = [seq for seq in self._running if seq.num_uncomputed_tokens > 1]
        num_streams = len(self._running) - len(prompts)
        longest = max((seq.num_admitted_tokens for seq in prompts), default=0)
        return Demand(num_streams, len(prompts) + len(self._waiting), longest)

    @property
    def waiting_ids(self) -> list[str]:
        """Requests that are not admitted yet, or were preempted; by rank."""
        return [seq.request_id for seq in self._waiting]

    @property
    def num_queried_tokens(self) -> int:
        """Prompt tokens that were looked for in the prefix cache."""
        return self._holdings.num_queried_tokens

    @property
    def num_hit_tokens(self) -> int:
        """Of these, those that were there."""
        return self._holdings.num_hit_tokens

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def add(self, seq: Sequence) -> None:
        """Queue a sequence.

        Raises:
            ValueError: it is empty, or leaves no room for a token in the model's context; or the
                encoder has nothing to read, or too much.
        """
        if not 0 < seq.num_tokens < self._max_model_len:
            raise ValueError(f"prompt of {seq.num_tokens} tokens; limit {self._max_model_len - 1}")
        if not min(1, self._max_input_len) <= len(seq.encoder_ids) <= self._max_input_len:
            raise ValueError(f"input of {len(seq.encoder_ids)} tokens; limit {self._max_input_len}")
        seq.arrival, self._num_arrived = self._num_arrived, self._num_arrived + 1
        insort(self._waiting, seq, key=_rank)

    def abort(self, request_id: str) -> bool:
        """Forget a sequence and free its blocks; false if there is none of that id."""
        for queue in (self._running, self._waiting):
            for seq in queue:
                if seq.request_id == request_id:
                    queue.remove(seq)
                    self._holdings.free(seq)
                    seq.is_over = True
                    return True
        return False

    def requests_of(self, adapter: int) -> list[str]:
        """The ids of the live requests that an adapter computes."""
        seqs = (*self._running, *self._waiting)
        return [seq.request_id for seq in seqs if seq.adapter == adapter]

    def schedule(
        self,
        prefill_limit: Callable[[Demand], int | None] | None = None,
        least_chance: float = LEAST_CHANCE,
    ) -> Step | None:
        """Plan the next step, without its guesses; `None` when there is nothing to do.

        `prefill_limit` tells how many prompt tokens may be computed beside decodes, once it is
        known who is admitted; `least_chance` is what a guess must have as a chance to be of use.
        """
        at = 0
        while at < len(self._running):  # it gets shorter, from the end
            self._make_room(self._running[at])
            at += 1
        self._admit()
        limit = prefill_limit(self.demand) if prefill_limit is not None else None
        plan = share_budget(self._running, self._max_num_batched_tokens, limit)
        budget = self._max_num_batched_tokens - sum(plan.values())
        chunks = []
        for seq, num_tokens in plan.items():
            num_drafts = self._num_drafts(seq, budget, least_chance)
            budget -= num_drafts
            num_tokens -= seq.num_unencoded_tokens
            chunks.append(Chunk(seq, seq.num_computed_tokens, num_tokens, num_drafts=num_drafts))
        return Step(tuple(chunks)) if chunks else None

    def schedule_next(self, step: Step) -> Step | None:
        """Plan what follows a step that is still to be applied; `None`: that has to be waited for.

        So it has where somebody could be admitted.
        """
        if self._waiting and len(self._running) < self._max_num_seqs:
            return None
        return plan_ahead(step, len(self._running), self._max_model_len, self._holdings)

    def apply(self, results: Mapping[str, tuple[Sampled, ...]], step: Step) -> list[SequenceOutput]:
        """Take in a step's tokens; returns one output per sequence that got a token or ended.

        `results` maps request ids to what was sampled, for every chunk that `is_sampled`: for its
        last token, and after each guess.
        """
        outputs = []
        for chunk in step.chunks:
            if chunk.seq.is_over:
                continue
            if chunk.is_sampled:
                outputs.append(self._take(chunk, results[chunk.seq.request_id]))
            else:
                self._holdings.advance(chunk.seq, chunk.end, chunk.num_drafted_tokens)
        return outputs

    def check_integrity(self) -> None:
        """Raises `RuntimeError` unless every block has exactly one story."""
        self._holdings.check_integrity((*self._running, *self._waiting))

    def _make_room(self, seq: Sequence) -> None:
        """Give a running sequence blocks for all of its tokens, at the cost of the last in rank."""
        while not self._holdings.grow(seq, seq.num_tokens):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is seq:
                return

    def _num_drafts(self, seq: Sequence, budget: int, least_chance: float) -> int:
        """How many tokens may be guessed; there is room for them then."""
        params = seq.sampling
        if seq.num_uncomputed_tokens > 1:
            return 0
        num_left = min(
            params.max_tokens - seq.num_completion_tokens, self._max_model_len - seq.num_tokens
        )
        most = min(self._num_speculative_tokens, budget, num_left - 1)
        count = seq.confidence.num_drafts(most, least_chance)
        return count if self._holdings.grow(seq, seq.num_tokens + count) else 0

    def _admit(self) -> None:
        """Let waiting sequences run, as long as there are places and room.

        One that waits for what another computes keeps its place meanwhile: nobody overtakes it.
        """
        num_deferred = 0
        for seq in list(self._waiting):
            if len(self._running) + num_deferred >= self._max_num_seqs:
                return
            self._holdings.take_prefix(seq)
            if self._is_computed_by_another(seq):
                self._holdings.free(seq)
                num_deferred += 1
            elif self._holdings.settle(seq):
                self._waiting.remove(seq)
                insort(self._running, seq, key=_rank)
                self._holdings.count_hit(seq)
                seq.num_admitted_tokens = seq.num_uncomputed_tokens
            else:
                self._holdings.free(seq)
                return

    def _is_computed_by_another(self, seq: Sequence) -> bool:
        """The block that a sequence needs next is still to come from one that goes before it."""
        order = prefill_order(seq)
        before = (other for other in self._running if prefill_order(other) <= order)
        return self._holdings.is_coming(seq, before)

    def _preempt(self, seq: Sequence) -> None:
        self._running.remove(seq)
        self._holdings.free(seq)
        insort(self._waiting, seq, key=_rank)
        self.num_preemptions += 1

    def _take(self, chunk: Chunk, sampled: tuple[Sampled, ...]) -> SequenceOutput:
        seq, error, reason = chunk.seq, sampled[0].error, None
        if error is not None:
            self._holdings.condemn(seq)
            self._end(seq)
            return SequenceOutput(seq.request_id, (), FinishReason.ERROR, error)
        is_first = not seq.num_completion_tokens
        num_cached_tokens = (seq.num_cached_tokens or 0) if is_first else 0
        queue_s = (seq.queue_s or 0.0) if is_first else 0.0
        num_before = seq.num_tokens
        accepted = chunk.accepted(sampled)
        seq.confidence.observe(len(chunk.draft_ids), len(accepted) - 1)
        for token_id in accepted:
            seq.token_ids.append(token_id)
            reason = self._finish_reason(seq, token_id)
            if reason is not None:
                break
        token_ids = tuple(seq.token_ids[num_before:])
        self.num_draft_tokens += len(chunk.draft_ids)
        self.num_accepted_tokens += len(token_ids) - 1
        self._holdings.advance(seq, seq.num_tokens - 1, chunk.num_drafted_tokens)
        if reason is not None:
            self._end(seq)
        return SequenceOutput(seq.request_id, token_ids, reason, None, num_cached_tokens, queue_s)

    def _end(self, seq: Sequence) -> None:
        self._running.remove(seq)
        self._holdings.free(seq)
        seq.is_over = True

    def _finish_reason(self, seq: Sequence, token_id: int) -> FinishReason | None:
        params = seq.sampling
        if seq.num_completion_tokens >= params.min_tokens:
            if token_id in self._eos_token_ids and not params.ignore_eos:
                return FinishReason.STOP
            if token_id in params.stop_token_ids:
                return FinishReason.STOP
        is_full = seq.num_tokens >= self._max_model_len
        return FinishReason.LENGTH if is_full or self._is_spent(seq) else None

    @staticmethod
    def _is_spent(seq: Sequence) -> bool:
        return seq.num_completion_tokens >= seq.sampling.max_tokens


def _rank(seq: Sequence) -> tuple[int, int]:
    return seq.rank
