"""How far an engine's greedy tokens are those of Transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts of tokens, each judged after the tokens that the engine itself had said before."""

    num_tokens: int
    #: For each token that is not Transformers' best: how far its logit is from the best one's.
    margins: tuple[float, ...]

    @property
    def share(self) -> float:
        return 1 - len(self.margins) / self.num_tokens


def agreement(folder: Path, answers: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Agreement:
    """Compare answers, as pairs of prompt and completion, with a forward pass in float32 each."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    margins: list[float] = []
    for prompt_ids, token_ids in answers:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt_ids, *token_ids]])).logits[0]
        rows = logits[len(prompt_ids) - 1 : -1]
        missing = rows.max(-1).values - rows.gather(1, torch.tensor([token_ids]).T)[:, 0]
        margins += missing[missing > 0].tolist()
    return Agreement(sum(len(token_ids) for _, token_ids in answers), tuple(margins))
