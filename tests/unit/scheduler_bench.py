"""A scheduler and its pool for tests, with a sampler that says what the test wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

from streamwell.core.types import SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.drafter import Drafter
from streamwell.engine.scheduler import Scheduler
from streamwell.engine.sequence import Sampled, Sequence, SequenceOutput, Step

EOS, OTHER, STOP_ID = 2, 7, 9


def a_seq(request_id: str, num_tokens: int = 4, max_tokens: int = 8, **params: object) -> Sequence:
    """A sequence whose prompt has nothing in common with that of another id."""
    first = int.from_bytes(request_id.encode())
    return with_prompt(request_id, range(first, first + num_tokens), max_tokens, **params)


def with_prompt(
    request_id: str,
    prompt: Iterable[int],
    max_tokens: int = 8,
    *,
    priority: int = 0,
    cache_salt: str = "",
    **params: object,
) -> Sequence:
    sampling = SamplingParams(max_tokens=max_tokens, **params)  # type: ignore[arg-type]
    return Sequence(request_id, list(prompt), sampling, priority, cache_salt)


def with_encoder(
    request_id: str, num_input_tokens: int, num_tokens: int = 1, max_tokens: int = 8
) -> Sequence:
    """A sequence whose decoder goes on after `num_tokens` tokens."""
    seq = with_prompt(request_id, range(num_tokens), max_tokens)
    seq.encoder_ids = tuple(range(num_input_tokens))
    return seq


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was computed when it was launched."""

    results: Mapping[str, tuple[Sampled, ...]]

    def wait(self) -> Mapping[str, tuple[Sampled, ...]]:
        return self.results


class Runner:
    """Samples the same token everywhere."""

    vocab_size = 100
    runs_ahead = False

    def launch(self, step: Step) -> Done:
        return Done({chunk.seq.request_id: (Sampled(OTHER),) for chunk in step.chunks})

    def launch_next(self, step: Step) -> Done:
        raise NotImplementedError


class Bench:
    """A scheduler over a pool of blocks of four tokens."""

    def __init__(
        self,
        seqs: Ordered[Sequence] = (),
        *,
        num_blocks: int = 32,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        max_model_len: int = 32,
        max_input_len: int = 0,
        enable_prefix_caching: bool = True,
        num_speculative_tokens: int = 0,
        drafter: Drafter | None = None,
    ) -> None:
        self.pool = BlockPool(num_blocks, 4)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            eos_token_ids=frozenset({EOS}),
            max_input_len=max_input_len,
            enable_prefix_caching=enable_prefix_caching,
            num_speculative_tokens=num_speculative_tokens,
        )
        self.drafter = drafter
        for seq in seqs:
            self.scheduler.add(seq)

    def plan(self, prefill_limit: int | None = None) -> Step:
        step = self.scheduler.schedule(lambda _: prefill_limit)
        assert step is not None
        self.scheduler.check_integrity()
        return step if self.drafter is None else self.drafter.fill(step)

    def step(self, **tokens: int | str) -> list[SequenceOutput]:
        """One step; `tokens` names a token or an error by request id, else it is `OTHER`."""
        return self.finish(self.plan(), **tokens)

    def finish(self, step: Step, **tokens: int | str) -> list[SequenceOutput]:
        """Run what `plan` gave."""
        results = {
            chunk.seq.request_id: (self._sampled(chunk.seq, tokens),) * chunk.num_sampled
            for chunk in step.chunks
        }
        outputs = self.scheduler.apply(results, step)
        self.scheduler.check_integrity()
        return outputs

    def drain(self) -> list[SequenceOutput]:
        outputs = []
        while self.scheduler.has_work:
            outputs += self.step()
        return outputs

    @staticmethod
    def _sampled(seq: Sequence, tokens: dict[str, int | str]) -> Sampled:
        token = tokens.get(seq.request_id, OTHER)
        return Sampled(token) if isinstance(token, int) else Sampled(-1, token)


def shape_of(step: Step) -> list[tuple[str, int, int]]:
    """`(request, start, num_tokens)` of every chunk."""
    return [(c.seq.request_id, c.start, c.num_tokens) for c in step.chunks]
