"""Decides what the next step computes, and takes in what it brought. Pure: no torch, no clock.

Rules:
1. First come, first served, and running sequences before waiting ones. A sequence is admitted only
   when the running ones have had their share of the step's token budget, so a long prompt does not
   hold them up: it gets what is left, over as many steps as that takes.
2. When blocks run out, the newest running sequence is preempted: its blocks are freed and its
   tokens are computed again later. The oldest one always goes on, so all of them finish.
3. A waiting sequence is admitted when all of its tokens find room.
4. Every sequence that was added ends with exactly one output that carries a reason or an error,
   unless it was aborted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from streamwell.core.types import FinishReason
from streamwell.engine.block_pool import BlockPool
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
    ) -> None:
        if pool.num_blocks < pool.blocks_for(max_model_len):
            raise ValueError("the KV cache cannot hold one sequence of max_model_len tokens")
        if max_num_batched_tokens < max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_model_len = max_model_len
        self._eos_token_ids = eos_token_ids
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self.num_preemptions = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def add(self, seq: Sequence) -> None:
        """Queue a sequence.

        Raises:
            ValueError: it is empty, or leaves no room for a token in the model's context.
        """
        if not 0 < seq.num_tokens < self._max_model_len:
            raise ValueError(f"prompt of {seq.num_tokens} tokens; limit {self._max_model_len - 1}")
        self._waiting.append(seq)

    def abort(self, request_id: str) -> bool:
        """Forget a sequence and free its blocks; false if there is none of that id."""
        for queue in (self._running, self._waiting):
            for seq in queue:
                if seq.request_id == request_id:
                    queue.remove(seq)
                    self._free(seq)
                    return True
        return False

    def schedule(self) -> Step | None:
        """Plan the next step; `None` when there is nothing to do."""
        plan: dict[Sequence, int] = {}
        budget = self._max_num_batched_tokens
        for seq in list(self._running):
            if seq in self._running:  # it may have been preempted for one before it
                budget -= self._plan_running(seq, min(seq.num_uncomputed_tokens, budget), plan)
        self._admit(budget, plan)
        chunks = tuple(Chunk(seq, seq.num_computed_tokens, n) for seq, n in plan.items())
        return Step(chunks) if chunks else None

    def apply(self, results: Mapping[str, Sampled], step: Step) -> list[SequenceOutput]:
        """Take in a step's tokens; returns one output per sequence that got a token or ended.

        `results` maps request ids to what was sampled, for every chunk that `is_sampled`.
        """
        outputs = []
        for chunk in step.chunks:
            chunk.seq.num_computed_tokens = chunk.end
            if chunk.is_sampled:
                outputs.append(self._take(chunk.seq, results[chunk.seq.request_id]))
        return outputs

    def check_integrity(self) -> None:
        """Raises `RuntimeError` unless every block has exactly one story."""
        self._pool.check_integrity(s.block_ids for s in (*self._running, *self._waiting))

    def _plan_running(self, seq: Sequence, num_tokens: int, plan: dict[Sequence, int]) -> int:
        """Plan up to `num_tokens` for a running sequence; returns how many it got."""
        while num_tokens and not self._grow(seq, seq.num_computed_tokens + num_tokens):
            victim = self._running[-1]  # never planned yet: the newest comes last
            self._preempt(victim)
            if victim is seq:
                return 0
        if num_tokens:
            plan[seq] = num_tokens
        return num_tokens

    def _admit(self, budget: int, plan: dict[Sequence, int]) -> None:
        while self._waiting and budget > 0 and len(self._running) < self._max_num_seqs:
            seq = self._waiting[0]
            if not self._grow(seq, seq.num_tokens):
                return
            self._running.append(self._waiting.popleft())
            plan[seq] = min(seq.num_uncomputed_tokens, budget)
            budget -= plan[seq]

    def _grow(self, seq: Sequence, num_tokens: int) -> bool:
        """Give the sequence blocks for `num_tokens` tokens; false if there are not enough."""
        missing = self._pool.blocks_for(num_tokens) - len(seq.block_ids)
        if missing <= 0:
            return True
        blocks = self._pool.allocate(missing)
        if blocks is None:
            return False
        seq.block_ids.extend(blocks)
        return True

    def _preempt(self, seq: Sequence) -> None:
        self._running.remove(seq)
        self._free(seq)
        self._waiting.appendleft(seq)
        self.num_preemptions += 1

    def _free(self, seq: Sequence) -> None:
        """The one place where a sequence gives its blocks back."""
        self._pool.release(seq.block_ids)
        seq.block_ids.clear()
        seq.num_computed_tokens = 0

    def _take(self, seq: Sequence, sampled: Sampled) -> SequenceOutput:
        if sampled.error is not None:
            self._end(seq)
            return SequenceOutput(seq.request_id, (), FinishReason.ERROR, sampled.error)
        seq.token_ids.append(sampled.token_id)
        reason = self._finish_reason(seq, sampled.token_id)
        if reason is not None:
            self._end(seq)
        return SequenceOutput(seq.request_id, (sampled.token_id,), reason)

    def _end(self, seq: Sequence) -> None:
        self._running.remove(seq)
        self._free(seq)

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
