"""What a step that was launched brings, before and after it is waited for."""

from __future__ import annotations

import torch
from scheduler_bench import with_prompt

from streamwell.engine.model_runner import Launched
from streamwell.engine.sampler import Drawn
from streamwell.engine.sequence import Chunk, Sampled

UNSAMPLED = Sampled(-1, "the logits are not finite")


def test_tokens_are_found_by_their_sequences() -> None:
    """In the order in which they are wanted; without those in the midst of their prompts."""
    a, b, c, half = (with_prompt(name, [1, 2, 3]) for name in ("a", "b", "c", "half"))
    launched = Launched(
        [Chunk(a, 2, 1), Chunk(b, 2, 1), Chunk(half, 0, 2), Chunk(c, 0, 3)],
        Drawn(torch.tensor([7, -1, 9])),
    )

    following = [Chunk(seq, 3, 1) for seq in (a, b, c)]
    assert [7, 0, 9] == launched.tokens_of(following).tolist()
    assert [9, 7] == launched.tokens_of([following[2], following[0]]).tolist()
    assert {"a": (Sampled(7),), "b": (UNSAMPLED,), "c": (Sampled(9),)} == launched.wait()


def test_a_step_in_the_midst_of_prompts_brings_nothing() -> None:
    """Nobody is told anything."""
    assert {} == Launched([Chunk(with_prompt("a", [1, 2, 3]), 0, 2)], None).wait()
