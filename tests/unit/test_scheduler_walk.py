"""The scheduler on long random walks, watched by books that are kept apart from its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from walk_cache import FakeCache

from streamwell.core.types import FinishReason, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.drafter import Drafter, NgramDrafter
from streamwell.engine.scheduler import Scheduler
from streamwell.engine.sequence import Chunk, Sampled, Sequence, SequenceOutput, Step

NUM_WALKS, STEPS_PER_WALK = 20, 500
EOS, STOP_ID, VOCAB_SIZE = 2, 3, 40
BLOCK_SIZE, MAX_MODEL_LEN, MAX_INPUT_LEN = 4, 48, 20


@dataclass(slots=True, eq=False)
class Account:
    """What the walk knows of one live request."""

    seq: Sequence
    prompt: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    #: Where its next chunk must start.
    num_computed: int = 0
    #: What was left to compute when it was last admitted.
    num_admitted: int = 0
    num_preemptions: int = 0
    #: What it must be told with its first output, once it was admitted.
    num_cached: int | None = None

    @property
    def is_running(self) -> bool:
        return bool(self.seq.block_ids)

    @property
    def num_unread(self) -> int:
        """Tokens that its encoder has not read."""
        return 0 if self.num_computed else len(self.seq.encoder_ids)

    @property
    def need(self) -> int:
        return len(self.prompt) + len(self.tokens) - self.num_computed + self.num_unread

    @property
    def least(self) -> int:
        """An encoder reads all, and its decoder computes a token at once."""
        return self.num_unread + 1

    def has_beginning_of(self, other: Account) -> bool:
        """Their first blocks are the same, so one of them may wait for the other."""
        mine, its = (a.seq.token_ids[:BLOCK_SIZE] for a in (self, other))
        is_shared = not self.seq.encoder_ids and self.seq.cache_salt == other.seq.cache_salt
        return is_shared and mine == its

    def expected_reason(self) -> FinishReason | None:
        """Told from the tokens alone."""
        params, last, count = self.seq.sampling, self.tokens[-1], len(self.tokens)
        stops = {*params.stop_token_ids, *(() if params.ignore_eos else (EOS,))}
        if last in stops and count >= params.min_tokens:
            return FinishReason.STOP
        is_full = len(self.prompt) + count == MAX_MODEL_LEN
        return FinishReason.LENGTH if is_full or count == params.max_tokens else None


class FakeDraftModel:
    """Guesses at random, computes at its own pace, and writes a cache of its own."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.cache = FakeCache(BLOCK_SIZE)

    def fill(self, step: Step) -> Step:
        if self.rng.random() < 0.3 and all(chunk.is_decode for chunk in step.chunks):
            return Step(tuple(c.guessed((), c.seq.num_drafted_tokens) for c in step.chunks))
        return Step(tuple(map(self.guess, step.chunks)))

    def guess(self, chunk: Chunk) -> Chunk:
        """All that it lacks of a sequence, then guesses; the last of them it does not compute."""
        count = self.rng.randint(0, chunk.num_drafts)
        draft_ids = tuple(self.rng.randrange(VOCAB_SIZE) for _ in range(count))
        end = chunk.end + max(0, count - 1)
        start = chunk.seq.num_drafted_tokens
        self.cache.write(Chunk(chunk.seq, start, end - start, draft_ids[:-1]))
        return chunk.guessed(draft_ids, end)


class Walk:
    """Adds, aborts and steps at random; every rule is checked after every step."""

    def __init__(self, seed: int, max_input_len: int) -> None:
        self.rng = Random(seed)
        self.max_input_len = max_input_len
        self.max_num_seqs = self.rng.randint(2, 8)
        self.budget = self.rng.choice([self.max_num_seqs, 12, 24, 100])
        self.drafter = self.make_drafter(seed)
        self.pool = BlockPool(self.rng.randint(12, 22) + max_input_len // 2, BLOCK_SIZE)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.budget,
            max_model_len=MAX_MODEL_LEN,
            eos_token_ids=frozenset({EOS}),
            max_input_len=max_input_len,
            num_speculative_tokens=3 if self.drafter else 0,
        )
        self.cache = FakeCache(BLOCK_SIZE)
        self.texts = [[self.rng.randrange(VOCAB_SIZE) for _ in range(30)] for _ in range(3)]
        self.live: dict[str, Account] = {}
        self.num_added = self.num_aborted = self.num_ended = self.num_resumed = 0

    def make_drafter(self, seed: int) -> Drafter | None:
        """One walk in three goes without guesses; draft models are for decoders."""
        if seed % 3 == 0:
            return None
        is_model = seed % 3 == 1 and not self.max_input_len
        return FakeDraftModel(self.rng) if is_model else NgramDrafter()

    def add(self) -> None:
        """One request, or several of the same prompt, which often begins like others."""
        rng = self.rng
        known = rng.choice(self.texts)[: rng.choice([0, 5, 12, 20])]
        prompt = [*known, *(rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 10)))]
        priority, salt = rng.choice([0, 0, 0, 1, -1]), rng.choice(["", "", "", "x"])
        for _ in range(rng.choice([1, 1, 1, 3])):
            self.num_added += 1
            sampling = SamplingParams(
                max_tokens=rng.randint(1, 40),
                min_tokens=rng.choice([0, 0, 3]),
                ignore_eos=rng.random() < 0.3,
                stop_token_ids=rng.choice([(), (STOP_ID,)]),
            )
            seq = Sequence(f"r{self.num_added}", list(prompt), sampling, priority, salt)
            seq.encoder_ids = self.encoder_ids()
            self.live[seq.request_id] = Account(seq, tuple(prompt))
            self.scheduler.add(seq)

    def encoder_ids(self) -> tuple[int, ...]:
        if not self.max_input_len:
            return ()
        length = self.rng.randint(1, self.max_input_len)
        return tuple(self.rng.randrange(VOCAB_SIZE) for _ in range(length))

    def abort(self) -> None:
        if not self.live:
            return
        account = self.live.pop(self.rng.choice(list(self.live)))
        self.num_aborted += 1
        assert self.scheduler.abort(account.seq.request_id)
        assert [] == account.seq.block_ids == account.seq.cross_block_ids
        self.scheduler.check_integrity()

    def step(self) -> None:
        was_running = {a for a in self.live.values() if a.is_running}
        num_preemptions = self.scheduler.num_preemptions
        step = self.scheduler.schedule()
        self.scheduler.check_integrity()
        if step is not None and self.drafter is not None:
            step = self.drafter.fill(step)
        running = {a for a in self.live.values() if a.is_running}
        # a preempted sequence may be back at once, on blocks that others hold
        moved = {a for a in was_running if a.seq.num_computed_tokens != a.num_computed}
        preempted = (was_running - running) | moved
        assert len(preempted) <= self.scheduler.num_preemptions - num_preemptions
        for account in preempted:
            account.num_computed = 0
            account.num_preemptions += 1
        if step is None:
            assert not self.live
            return
        self.check_admitted(running - (was_running - preempted))
        self.check_fairness(step, running)
        self.check_chunks(step)
        for account in running:
            self.check_caches(account)
        self.apply(step)

    def check_admitted(self, admitted: set[Account]) -> None:
        """By rank, but for those who wait for their like; with full blocks, never with all."""
        for account in admitted:
            start = account.num_computed = account.seq.num_computed_tokens
            account.num_admitted = account.need
            assert start % BLOCK_SIZE == 0
            assert account.need >= 1
            num_blocks = self.pool.blocks_for(len(account.seq.encoder_ids))
            assert num_blocks == len(account.seq.cross_block_ids)
            if account.num_cached is None:
                account.num_cached = start
        for waiting in (a for a in self.live.values() if not a.is_running):
            if any(waiting.seq.rank < account.seq.rank for account in admitted):
                others = (a for a in self.live.values() if a.is_running)
                assert any(waiting.has_beginning_of(other) for other in others)

    def check_fairness(self, step: Step, running: set[Account]) -> None:
        """Limits, decodes first, a part for the first in rank, the short before the long."""
        chosen = {self.live[chunk.seq.request_id]: chunk.cost for chunk in step.chunks}
        by_rank = sorted(running, key=lambda account: account.seq.rank)
        assert len(chosen) == len(step.chunks)
        assert self.scheduler.num_running == len(running) <= self.max_num_seqs
        assert self.scheduler.num_waiting == len(self.live) - len(running)
        assert by_rank[0] in chosen
        assert {account for account in running if account.need == 1} <= chosen.keys()
        prefills = [account for account in by_rank if account.need > 1]
        num_decodes = len(by_rank) - len(prefills)
        left = self.budget - num_decodes
        most = self.budget
        if prefills:
            first = prefills[0]
            part = min(left / 2, first.num_admitted / 16)
            assert chosen[first] >= min(first.need, max(part, first.least))
            most = max(most, num_decodes + first.least)
        assert step.num_tokens <= most
        for account in prefills:
            given = chosen.get(account, 0)
            assert given == 0 or given >= account.least
            if given < account.need:  # nothing is left that it could use
                assert self.budget - step.num_tokens < (1 if given else account.least)
        if self.max_input_len:
            return  # a short input may fit where a shorter prefix after a long one does not
        order = sorted(prefills[1:], key=lambda a: (a.seq.priority, a.need))
        gets = [chosen.get(account, 0) / account.need for account in order]
        assert gets == sorted(gets, reverse=True)

    def check_chunks(self, step: Step) -> None:
        """Each chunk goes on where the last one of its sequence ended, in blocks of its own."""
        for chunk in step.chunks:
            account = self.live[chunk.seq.request_id]
            assert account.num_computed == chunk.start
            num_drafts = len(chunk.draft_ids)
            assert account.least <= chunk.cost - num_drafts <= account.need
            assert account.num_unread == len(chunk.encoder_ids)
            assert [*account.prompt, *account.tokens] == chunk.seq.token_ids
            account.num_computed = chunk.end - num_drafts
            self.cache.write(chunk)

    def check_caches(self, account: Account) -> None:
        """What is computed is there; a draft model may be behind, and has its own."""
        self.cache.check(account.seq, account.num_computed)
        if isinstance(self.drafter, FakeDraftModel):
            assert account.seq.num_drafted_tokens <= account.num_computed
            self.drafter.cache.check(account.seq, account.seq.num_drafted_tokens)
        elif account.num_computed == account.seq.num_computed_tokens:
            assert account.seq.num_drafted_tokens == account.num_computed

    def apply(self, step: Step) -> None:
        results = {c.seq.request_id: self.sampled(c) for c in step.chunks if c.is_sampled}
        outputs = self.scheduler.apply(results, step)
        self.scheduler.check_integrity()
        assert sorted(results) == sorted(output.request_id for output in outputs)
        for output in outputs:
            self.take(output, results[output.request_id])

    def sampled(self, chunk: Chunk) -> tuple[Sampled, ...]:
        """A model that repeats itself, so that many guesses are right."""
        own, rng = chunk.seq.token_ids, self.rng
        likely = (*chunk.draft_ids, own[-3:][0])
        return tuple(
            Sampled(-1, "unlucky")
            if rng.random() < 0.01
            else Sampled(likely[at] if rng.random() < 0.6 else rng.randrange(VOCAB_SIZE))
            for at in range(chunk.num_sampled)
        )

    def take(self, output: SequenceOutput, sampled: tuple[Sampled, ...]) -> None:
        account = self.live[output.request_id]  # whoever has ended or was aborted stays silent
        name, error = output.request_id, sampled[0].error
        if error is not None:
            expected = SequenceOutput(name, (), FinishReason.ERROR, error)
        else:
            cached = 0 if account.tokens else account.num_cached or 0
            account.tokens += output.token_ids
            account.num_computed += len(output.token_ids) - 1
            assert list(output.token_ids) == [s.token_id for s in sampled][: len(output.token_ids)]
            reason = account.expected_reason()
            expected = SequenceOutput(name, output.token_ids, reason, num_cached_tokens=cached)
            if reason is None:
                self.check_caches(account)
        assert expected == output
        if expected.finish_reason is not None:
            del self.live[output.request_id]
            assert [] == account.seq.block_ids == account.seq.cross_block_ids
            self.num_ended += 1
            self.num_resumed += account.num_preemptions > 0


@pytest.mark.parametrize("max_input_len", [0, MAX_INPUT_LEN], ids=["decoders", "with encoders"])
@pytest.mark.parametrize("seed", range(NUM_WALKS))
def test_every_rule_holds_on_a_random_walk(seed: int, max_input_len: int) -> None:
    """10,000 steps: fair, within limits, each request ends once, and no block is ever lost."""
    walk = Walk(seed, max_input_len)
    for _ in range(STEPS_PER_WALK):
        if walk.rng.random() < 0.13:
            walk.add()
        if walk.rng.random() < 0.04:
            walk.abort()
        walk.step()
    while walk.scheduler.has_work:
        walk.step()

    assert walk.num_added == walk.num_ended + walk.num_aborted
    assert walk.scheduler.num_preemptions > 0
    assert (walk.scheduler.num_hit_tokens > 0) is (max_input_len == 0)
    assert (walk.scheduler.num_accepted_tokens > 0) is (walk.drafter is not None)
    assert walk.num_resumed > 0
    assert 0 == walk.pool.num_used
