"""What rounding weights costs in quality: `python -m bench.quality`.

On the model in the box, which is trained: the perplexity of the right replies in conversations
held out from training. The share of right answers is `make eval-brooklet`'s to tell.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from random import Random

import torch

from bench.latency import Engine
from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.models import brooklet_path
from training.brooklet.cases import Case, make_cases
from training.brooklet.tokenizer import TURN_END, load_tokenizer

PRECISIONS = ("float32", "int8", "int4")
CASES_PER_TASK, MAX_REPLY_CHARS = 20, 200


class Subject:
    """The model at one precision."""

    def __init__(self, folder: Path, precision: str) -> None:
        self._engine = Engine(folder, precision)
        self._tokenizer = load_tokenizer(folder)

    def perplexity(self, cases: list[Case]) -> float:
        """Of the replies' tokens, given what comes before them."""
        losses = [loss for case in cases for loss in self._losses(case)]
        return math.exp(sum(losses) / len(losses))

    def _prompt_ids(self, case: Case) -> list[int]:
        ids: list[int] = self._tokenizer.apply_chat_template(
            case.messages, tools=case.tools, add_generation_prompt=True, return_dict=False
        )
        return ids

    @torch.inference_mode()
    def _losses(self, case: Case) -> list[float]:
        prompt = self._prompt_ids(case)
        reply = self._tokenizer.encode(case.wanted[0] + TURN_END, add_special_tokens=False)
        seq = Sequence("case", prompt + reply, SamplingParams(max_tokens=1))
        seq.block_ids = list(range(1, len(seq.token_ids) // 16 + 2))
        rows = range(len(prompt) - 1, len(prompt) + len(reply) - 1)
        chunk = Chunk(seq, 0, seq.num_tokens)
        logits = self._engine.model.runner.model.forward([chunk], list(rows))
        chosen = torch.tensor(reply)[:, None]
        losses: list[float] = (-logits.float().log_softmax(-1).gather(1, chosen))[:, 0].tolist()
        return losses


def main() -> None:
    """Measure each precision, and print a row for it."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--model", type=Path, default=brooklet_path(), help="a brooklet's folder")
    args = parser.parse_args()
    drawn = make_cases(Random(1), CASES_PER_TASK)
    whole = [case for case in drawn if case.exact and not case.calls and not case.thinks]
    cases = [case for case in whole if len(case.wanted[0]) < MAX_REPLY_CHARS]
    print(f"{len(cases)} held-out conversations\n| weights | perplexity |\n|---|---|")
    for precision in PRECISIONS:
        perplexity = Subject(args.model, precision).perplexity(cases)
        print(f"| {precision} | {perplexity:.4f} |", flush=True)


if __name__ == "__main__":
    main()
