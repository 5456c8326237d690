"""The schedule of a training run: its rounds, how fast each learns, and what is drawn when."""

from __future__ import annotations

from dataclasses import dataclass

from training.brooklet.themes import FIFTH, FIRST, FOURTH, SECOND, THIRD, Mix
from training.trainer import rate_share

STEPS = 9000  # of the published run; what follows counts them
SECOND_ROUND, THIRD_ROUND, LAST_ROUND = 6000, 7300, 8400  # the step that begins each
MIXES = {0: FIRST, 1000: SECOND, 2200: THIRD, SECOND_ROUND: FOURTH, LAST_ROUND: FIFTH}
COOL_DOWN = 0.35  # of the first round's steps
LATER_PEAK = 0.5  # of the peak rate: where the fall of a later round would begin


@dataclass(frozen=True)
class Schedule:
    """That of a run of so many steps: what the published run does, sooner in proportion."""

    steps: int = STEPS

    @property
    def later_rounds(self) -> tuple[int, int, int]:
        """The steps that the second, the third and the last round begin with."""
        second, third, last = map(self._sooner, (SECOND_ROUND, THIRD_ROUND, LAST_ROUND))
        return second, third, last

    def rate_at(self, step: int) -> float:
        """The share of the peak rate in a step.

        When the first round has cooled down, later ones rise and fall at once, each in a straight
        line: warm restarts (https://arxiv.org/abs/1608.03983).
        """
        borders = (*self.later_rounds, self.steps)
        begin = max((border for border in borders if border <= step), default=0)
        end = min(border for border in borders if border > step)
        peak, cool_down = (LATER_PEAK, 1.0) if begin else (1.0, COOL_DOWN)
        return peak * rate_share(step - begin, end - begin, cool_down)

    def mix_at(self, step: int) -> Mix:
        """How often everything is drawn in a step."""
        return MIXES[max(first for first in MIXES if self._sooner(first) <= step)]

    def _sooner(self, step: int) -> int:
        """The step of this run at which the published one would be in that one."""
        return round(step * self.steps / STEPS)


PUBLISHED = Schedule()
