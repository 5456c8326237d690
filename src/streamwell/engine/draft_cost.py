"""What a guess costs, in tokens, by how long steps took. Pure: it is told the time.

A guess is computed by whoever makes it and once more to check it. Beside one stream that costs
little: a step is bound by reading the weights. Beside many it may cost more than a token does, and
with a draft model that is not much smaller it always will. So steps with guesses are compared with
steps without, for each number of streams apart. A guess is made only if the chance that it is of
use is more than it costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamwell.engine.confidence import LEAST_CHANCE
from streamwell.engine.sequence import Step

#: So many steps with guesses, then one without: what they are compared with changes.
STEPS_BETWEEN = 64
#: A time that is shorter than what is remembered is believed sooner than a longer one: a machine
#: with other things to do makes single steps slow, never fast.
_WEIGHT_UP, _WEIGHT_DOWN = 0.1, 0.3
#: Guesses that were too dear are tried again now and then.
_FORGIVEN = 0.001
_LEAST_COST, _MOST_COST = 0.1, 2.0


@dataclass(slots=True)
class _Times:
    """Steps of one number of streams."""

    #: Seconds of a step without guesses.
    plain_s: float
    #: Tokens' worth of time that a guess takes.
    cost: float = LEAST_CHANCE
    num_since_plain: int = 0


class DraftCost:
    """Remembers how long steps of so many streams take, with guesses and without."""

    def __init__(self) -> None:
        self._times: dict[int, _Times] = {}
        self._num_decodes = 0

    @property
    def least_chance(self) -> float:
        """The chance that a guess must have to be made, beside as many streams as in the last step.

        Infinite where a step without guesses has to come first.
        """
        times = self._times.get(self._num_decodes)
        is_known = times is not None and times.num_since_plain < STEPS_BETWEEN
        return times.cost if times is not None and is_known else math.inf

    def observe(self, step: Step, seconds: float) -> None:
        """Take in a step, and how long it took to guess and to compute it."""
        self._num_decodes = num_decodes = step.num_decodes
        num_drafts = sum(len(chunk.draft_ids) for chunk in step.chunks)
        if step.num_prefill_tokens or not num_decodes:
            return
        times = self._times.get(num_decodes)
        if times is None:
            if not num_drafts:
                self._times[num_decodes] = _Times(seconds)
        elif num_drafts:
            times.num_since_plain += 1
            more = (seconds - times.plain_s) / num_drafts
            cost = more * num_decodes / times.plain_s
            times.cost = _mean(times.cost, min(max(cost, _LEAST_COST), _MOST_COST))
        else:
            times.num_since_plain = 0
            times.plain_s = _mean(times.plain_s, seconds)
            times.cost -= min(_FORGIVEN, max(0.0, times.cost - LEAST_CHANCE))


def _mean(before: float, now: float) -> float:
    return before + (_WEIGHT_UP if now > before else _WEIGHT_DOWN) * (now - before)
