"""Shares a step's token budget among the sequences that run. Pure.

Rules:
1. Every decode gets its one token.
2. Prefills get the rest: of a better priority first, and within a priority those with the fewest
   tokens left. So a short prompt does not wait for a long one.
3. But a part of the rest is kept for the prefill that is first in rank: a sixteenth of its tokens,
   or half of the rest if that is less. So no stream of short prompts starves a long one: whoever is
   first in rank is through within sixteen steps, or gets on at half pace at the least, and so each
   comes to its end, one rank after the other. More than that would make two wait for what one of
   them could have sooner.
4. Beside decodes, prefills may have a limit of their own (`pace`), down to nothing; not while one
   is among them that has been heard from already, after a crash or a preemption: its reader waits
   in mid-answer, as those of the decodes would. But for that, nothing is left over while somebody
   could use it.
5. An encoder's input is computed in one go, with at least one token after it. Whoever is first in
   rank gets that, even over the budget; others wait for a step that has room for it.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from streamwell.engine.sequence import Sequence

#: Whoever is first in rank has computed its tokens after so many steps, if half of each is enough.
_FIRST_IN_RANK_STEPS = 16


def share_budget(
    running: Ordered[Sequence], budget: int, prefill_limit: int | None = None
) -> dict[Sequence, int]:
    """How many tokens each computes; who gets none is left out.

    Args:
        running: by rank.
        budget: tokens of the step, encoders' included; at least one for each who runs.
        prefill_limit: tokens that prefills may have beside decodes; `None` leaves it to the budget.
    """
    plan: dict[Sequence, int] = {}
    prefills: list[Sequence] = []
    for seq in running:
        if seq.num_uncomputed_tokens == 1:
            plan[seq] = 1
        else:
            prefills.append(seq)
    if not prefills:
        return plan
    budget -= len(plan)
    resumes = any(seq.num_completion_tokens for seq in prefills)
    if plan and prefill_limit is not None and not resumes:
        budget = min(budget, prefill_limit)
    if budget <= 0:
        return plan
    first = prefills[0]
    kept = min(first.num_uncomputed_tokens, max(_kept(first, budget), _least(first)))
    budget = max(0, budget - kept)
    for seq in sorted(prefills, key=prefill_order):
        budget += kept if seq is first else 0
        num_tokens = min(seq.num_uncomputed_tokens, budget)
        if num_tokens >= _least(seq):
            budget -= num_tokens
            plan[seq] = num_tokens
    return plan


def _kept(first: Sequence, budget: int) -> int:
    """What rule 3 keeps of a budget for the prefill that is first in rank."""
    return min(-(-budget // 2), -(-first.num_admitted_tokens // _FIRST_IN_RANK_STEPS))


def _least(seq: Sequence) -> int:
    """The fewest tokens of it that can be computed."""
    return seq.num_unencoded_tokens + 1


def prefill_order(seq: Sequence) -> tuple[int, int]:
    """Sorts prefills by rule 2; equals stay by rank."""
    return seq.priority, seq.num_uncomputed_tokens
