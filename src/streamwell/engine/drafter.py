"""Who guesses: the seam between the plan of a step and its computing. Pure.

The scheduler plans how many tokens may be guessed after a sequence's last one; a drafter puts the
guesses in before the step is computed. What it guesses decides how many steps an answer takes, and
never what the answer is: a guess holds only if it is what the model chooses.
"""

from __future__ import annotations

from typing import Protocol

from streamwell.engine.sequence import Step


class Drafter(Protocol):
    """`NgramDrafter`, or `draft_model.ModelDrafter`."""

    def fill(self, step: Step) -> Step:
        """The same step with up to `num_drafts` guesses in each chunk."""
        ...


class NgramDrafter:
    """Guesses by `prompt_lookup`; there is nothing to compute."""

    def fill(self, step: Step) -> Step:
        return Step(
            tuple(
                chunk.guessed(chunk.seq.lookup.propose(chunk.seq.token_ids, chunk.num_drafts))
                if chunk.num_drafts
                else chunk
                for chunk in step.chunks
            )
        )
