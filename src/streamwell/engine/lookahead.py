"""Plans a step before the one that it follows has brought its tokens. Pure.

A GPU that has computed a step would have nothing to do until the host has read its tokens, told
them, and planned and launched the next one. So that is launched before: one token more for each
sequence that is still there then, read by the GPU from where it wrote it. A sequence that ends with
the first step is computed once more for nothing.
"""

from __future__ import annotations

from streamwell.core.types import SamplingParams
from streamwell.engine.holdings import Holdings
from streamwell.engine.sequence import NUM_LIKELIEST, Chunk, Sequence, Step


def plan_ahead(step: Step, num_running: int, max_model_len: int, holdings: Holdings) -> Step | None:
    """The step after one that is being computed.

    `None` if there should be none: a sequence has more to compute than its next token, or must
    know the one before to choose it, or finds no room.
    """
    chunks = []
    live = [chunk for chunk in step.chunks if not chunk.seq.is_over]
    if len(live) != num_running:
        return None
    for chunk in live:
        seq = chunk.seq
        if not chunk.is_sampled or chunk.draft_ids or _needs_the_last(seq.sampling):
            return None
        if _ends_with(chunk.end + 1, seq, max_model_len):
            continue
        if not holdings.grow(seq, chunk.end + 1):
            return None
        chunks.append(Chunk(seq, chunk.end, 1))
    return Step(tuple(chunks)) if chunks else None


def _needs_the_last(params: SamplingParams) -> bool:
    """Penalties count tokens; what is cut, but not to a few, may have to be looked at again."""
    is_cut = params.temperature > 0 and params.is_cut
    return params.has_penalties or (is_cut and not 0 < params.top_k <= NUM_LIKELIEST)


def _ends_with(num_tokens: int, seq: Sequence, max_model_len: int) -> bool:
    """Whether a sequence is full or has all that was asked for, whatever the last token is."""
    num_completion_tokens = num_tokens - seq.num_prompt_tokens
    return num_tokens >= max_model_len or num_completion_tokens >= seq.sampling.max_tokens
