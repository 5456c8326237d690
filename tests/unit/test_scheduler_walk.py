"""The scheduler on long random walks, watched by books that are kept apart from its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from streamwell.core.types import FinishReason, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.scheduler import Scheduler
from streamwell.engine.sequence import Sampled, Sequence, SequenceOutput, Step

NUM_WALKS, STEPS_PER_WALK = 20, 500
EOS, STOP_ID, VOCAB_SIZE = 2, 3, 40
BLOCK_SIZE, MAX_MODEL_LEN = 4, 48


@dataclass(slots=True, eq=False)
class Account:
    """What the walk knows of one live request."""

    seq: Sequence
    arrival: int
    prompt: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    #: Where its next chunk must start.
    num_computed: int = 0
    num_preemptions: int = 0

    @property
    def is_running(self) -> bool:
        return bool(self.seq.block_ids)

    @property
    def need(self) -> int:
        return len(self.prompt) + len(self.tokens) - self.num_computed

    def expected_reason(self) -> FinishReason | None:
        """Told from the tokens alone."""
        params, last, count = self.seq.sampling, self.tokens[-1], len(self.tokens)
        stops = {*params.stop_token_ids, *(() if params.ignore_eos else (EOS,))}
        if last in stops and count >= params.min_tokens:
            return FinishReason.STOP
        is_full = len(self.prompt) + count == MAX_MODEL_LEN
        return FinishReason.LENGTH if is_full or count == params.max_tokens else None


class Walk:
    """Adds, aborts and steps at random; every rule is checked after every step."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.max_num_seqs = self.rng.randint(2, 8)
        self.budget = self.rng.choice([self.max_num_seqs, 12, 24, 100])
        self.pool = BlockPool(self.rng.randint(12, 22), BLOCK_SIZE)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.budget,
            max_model_len=MAX_MODEL_LEN,
            eos_token_ids=frozenset({EOS}),
        )
        #: In order of arrival.
        self.live: dict[str, Account] = {}
        self.num_added = self.num_aborted = self.num_ended = self.num_resumed = 0

    def add(self) -> None:
        rng, self.num_added = self.rng, self.num_added + 1
        sampling = SamplingParams(
            max_tokens=rng.randint(1, 40),
            min_tokens=rng.choice([0, 0, 3]),
            ignore_eos=rng.random() < 0.3,
            stop_token_ids=rng.choice([(), (STOP_ID,)]),
        )
        prompt = tuple(rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 30)))
        seq = Sequence(f"r{self.num_added}", list(prompt), sampling)
        self.live[seq.request_id] = Account(seq, self.num_added, prompt)
        self.scheduler.add(seq)

    def abort(self) -> None:
        if not self.live:
            return
        account = self.live.pop(self.rng.choice(list(self.live)))
        self.num_aborted += 1
        assert self.scheduler.abort(account.seq.request_id)
        assert [] == account.seq.block_ids
        self.scheduler.check_integrity()

    def step(self) -> None:
        was_running = {a for a in self.live.values() if a.is_running}
        num_preemptions = self.scheduler.num_preemptions
        step = self.scheduler.schedule()
        self.scheduler.check_integrity()
        preempted = {account for account in was_running if not account.is_running}
        assert len(preempted) == self.scheduler.num_preemptions - num_preemptions
        for account in preempted:
            account.num_computed = 0
            account.num_preemptions += 1
        if step is None:
            assert not self.live
            return
        self.check_fairness(step, was_running - preempted)
        self.check_chunks(step)
        self.apply(step)

    def check_fairness(self, step: Step, stayed: set[Account]) -> None:
        """Limits, order of arrival, decodes first, and no budget wasted."""
        chosen = {self.live[chunk.seq.request_id]: chunk.num_tokens for chunk in step.chunks}
        running = [account for account in self.live.values() if account.is_running]
        assert len(chosen) == len(step.chunks)
        assert step.num_tokens <= self.budget
        assert self.scheduler.num_running == len(running) <= self.max_num_seqs
        assert self.scheduler.num_waiting == len(self.live) - len(running)
        # whoever runs came before whoever waits, and the oldest of all goes on
        assert running == list(self.live.values())[: len(running)]
        assert running[0] in chosen
        assert {account for account in stayed if account.need == 1} <= chosen.keys()
        if any(chosen.get(account, 0) < account.need for account in running):
            assert self.budget == step.num_tokens

    def check_chunks(self, step: Step) -> None:
        """Each chunk goes on where the last one of its sequence ended, in blocks that it holds."""
        for chunk in step.chunks:
            account = self.live[chunk.seq.request_id]
            assert account.num_computed == chunk.start
            assert 1 <= chunk.num_tokens <= account.need
            assert chunk.end <= len(chunk.seq.block_ids) * BLOCK_SIZE
            assert [*account.prompt, *account.tokens] == chunk.seq.token_ids
            account.num_computed = chunk.end

    def apply(self, step: Step) -> None:
        results = {c.seq.request_id: self.sampled() for c in step.chunks if c.is_sampled}
        outputs = self.scheduler.apply(results, step)
        self.scheduler.check_integrity()
        assert sorted(results) == sorted(output.request_id for output in outputs)
        for output in outputs:
            self.take(output, results[output.request_id])

    def sampled(self) -> Sampled:
        if self.rng.random() < 0.01:
            return Sampled(-1, "unlucky")
        return Sampled(self.rng.randrange(VOCAB_SIZE))

    def take(self, output: SequenceOutput, sampled: Sampled) -> None:
        account = self.live[output.request_id]  # whoever has ended or was aborted stays silent
        if sampled.error is not None:
            expected = SequenceOutput(output.request_id, (), FinishReason.ERROR, sampled.error)
        else:
            account.tokens.append(sampled.token_id)
            reason = account.expected_reason()
            expected = SequenceOutput(output.request_id, (sampled.token_id,), reason)
        assert expected == output
        if expected.finish_reason is not None:
            del self.live[output.request_id]
            assert [] == account.seq.block_ids
            self.num_ended += 1
            self.num_resumed += account.num_preemptions > 0


@pytest.mark.parametrize("seed", range(NUM_WALKS))
def test_every_rule_holds_on_a_random_walk(seed: int) -> None:
    """10,000 steps: fair, within limits, each request ends once, and no block is ever lost."""
    walk = Walk(seed)
    for _ in range(STEPS_PER_WALK):
        if walk.rng.random() < 0.25:
            walk.add()
        if walk.rng.random() < 0.02:
            walk.abort()
        walk.step()
    while walk.scheduler.has_work:
        walk.step()

    assert walk.num_added == walk.num_ended + walk.num_aborted
    assert walk.scheduler.num_preemptions > 0
    assert walk.num_resumed > 0
    assert 0 == walk.pool.num_used
