"""What rounding weights costs in quality: `python -m bench.quality`.

On the model in the box, which is trained: the perplexity of the right replies, and the share of
right answers, over conversations held out from training.
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
from training.brooklet.evaluate import Case, is_right, make_cases
from training.brooklet.tokenizer import TURN_END, load_tokenizer

PRECISIONS = ("float32", "int8", "int4")
MAX_REPLY_TOKENS, CASES_AT_ONCE = 200, 32


class Subject:
    """The model at one precision."""

    def __init__(self, folder: Path, precision: str) -> None:
        self._engine = Engine(folder, precision)
        self._tokenizer = load_tokenizer(folder)

    def perplexity(self, cases: list[Case]) -> float:
        """Of the replies' tokens, given what comes before them."""
        losses = [loss for case in cases for loss in self._losses(case)]
        return math.exp(sum(losses) / len(losses))

    def accuracy(self, cases: list[Case]) -> float:
        """Share of replies that are right."""
        right = 0
        for start in range(0, len(cases), CASES_AT_ONCE):
            batch = {str(i): case for i, case in enumerate(cases[start : start + CASES_AT_ONCE])}
            for name, case in batch.items():
                self._engine.add(name, self._prompt_ids(case), MAX_REPLY_TOKENS, ignore_eos=False)
            while self._engine.scheduler.has_work:
                self._engine.step()
            for name, case in batch.items():
                tokens = self._engine.tokens[name]
                reply = self._tokenizer.decode(tokens, skip_special_tokens=True)
                right += is_right(case.exchange, reply)
        return right / len(cases)

    def _prompt_ids(self, case: Case) -> list[int]:
        ids: list[int] = self._tokenizer.apply_chat_template(
            case.messages, add_generation_prompt=True, return_dict=False
        )
        return ids

    @torch.inference_mode()
    def _losses(self, case: Case) -> list[float]:
        prompt = self._prompt_ids(case)
        reply = self._tokenizer.encode(case.exchange.reply + TURN_END, add_special_tokens=False)
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
    cases = [case for case in make_cases(Random(1)) if len(case.exchange.reply) < MAX_REPLY_TOKENS]
    print(f"{len(cases)} held-out conversations\n| weights | perplexity | right |\n|---|---|---|")
    for precision in PRECISIONS:
        subject = Subject(args.model, precision)
        figures = subject.perplexity(cases), subject.accuracy(cases)
        print(f"| {precision} | {figures[0]:.4f} | {100 * figures[1]:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
