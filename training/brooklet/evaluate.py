"""The evaluator: greedy accuracy per task on items that were never trained on."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from training.brooklet.corpus import Message, system_prompt, to_messages
from training.brooklet.exchange import Exchange, Facts, Theme, draw
from training.brooklet.themes import THEMES
from training.brooklet.themes.memory import ask_favourite, ask_name, tell_favourite, tell_name
from training.brooklet.tokenizer import load_tokenizer
from training.brooklet.train import ARTEFACTS, THREADS

TELL_BEFORE: dict[Theme, Theme] = {ask_name: tell_name, ask_favourite: tell_favourite}
# Telling a second name in between would change the expected answer.
FILLERS = [theme for theme in THEMES if theme not in {*TELL_BEFORE, *TELL_BEFORE.values()}]
CASES_PER_THEME = 24
BATCH = 30
LONGEST_REPLY = 800


@dataclass(frozen=True)
class Case:
    """A conversation that ends with the held-out prompt to answer."""

    messages: list[Message]
    exchange: Exchange


@dataclass
class Score:
    """How one task went."""

    asked: int = 0
    right: int = 0
    ended: int = 0

    def add(self, *, right: bool, ended: bool) -> None:
        """Count one reply."""
        self.asked += 1
        self.right += right
        self.ended += ended

    def row(self, task: str) -> str:
        """Format as a line of a Markdown table."""
        right, ended = (100 * part / self.asked for part in (self.right, self.ended))
        return f"| {task} | {self.asked} | {right:.0f} % | {ended:.0f} % |"


def make_case(theme: Theme, rng: Random, *, tell: bool) -> Case:
    """Compose context that may be trained on, then an exchange that was held out."""
    system, name = system_prompt(rng)
    facts: Facts = {"assistant": name}
    exchanges = []
    if tell:
        exchanges.append(draw(TELL_BEFORE[theme], rng, facts, held_out=True))
        facts |= exchanges[0].learned
    fillers = rng.choices(FILLERS, k=rng.randint(0, 2))
    exchanges += [draw(filler, rng, facts) for filler in fillers]
    exchange = draw(theme, rng, facts, held_out=True)
    return Case(to_messages(system, [*exchanges, exchange])[:-1], exchange)


def make_cases(rng: Random) -> list[Case]:
    """Compose the cases of all themes; memory is tried both with and without being told."""
    cases = []
    for theme in THEMES:
        for tell in (True, False) if theme in TELL_BEFORE else (False,):
            cases += [make_case(theme, rng, tell=tell) for _ in range(CASES_PER_THEME)]
    return cases


def is_right(exchange: Exchange, reply: str) -> bool:
    """Accept a reply that contains an accepted answer, or the exact reply where none is given."""
    if not exchange.answer:
        return reply == exchange.reply
    return any(answer in reply for answer in exchange.answer.split("|"))


@torch.inference_mode()
def answer_all(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: list[list[Message]]
) -> list[tuple[str, bool]]:
    """Reply greedily to each conversation, and tell whether the reply ended by itself."""
    tokenizer.padding_side = "left"  # replies must start right after the prompts
    replies = []
    for start in range(0, len(prompts), BATCH):
        inputs = tokenizer.apply_chat_template(
            prompts[start : start + BATCH],
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        )
        outputs = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=LONGEST_REPLY,
            do_sample=False,
            temperature=None,
            top_p=None,
        )
        for tokens in outputs[:, inputs["input_ids"].shape[1] :].tolist():
            text = tokenizer.decode(tokens, skip_special_tokens=True)
            replies.append((text, tokenizer.eos_token_id in tokens))
    return replies


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ARTEFACTS)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--mistakes", type=int, default=0, help="show so many per task")
    return parser.parse_args()


def main() -> None:
    """Print a Markdown table of scores, and the mistakes if wanted."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    tokenizer = load_tokenizer(arguments.model)
    dtype = getattr(torch, arguments.dtype)
    model = LlamaForCausalLM.from_pretrained(arguments.model, dtype=dtype).eval()
    # Cases of similar length together waste little on padding.
    cases = sorted(make_cases(Random(arguments.seed)), key=lambda case: len(case.exchange.reply))
    replies = answer_all(model, tokenizer, [case.messages for case in cases])
    scores: dict[str, Score] = defaultdict(Score)
    for case, (reply, ended) in zip(cases, replies, strict=True):
        task, right = case.exchange.task, is_right(case.exchange, reply)
        scores[task].add(right=right, ended=ended)
        scores["all"].add(right=right, ended=ended)
        if not right and scores[task].asked - scores[task].right <= arguments.mistakes:
            print(f"{task}: {case.exchange.prompt!r} got {reply!r}, wanted {case.exchange.reply!r}")
    print("| task | asked | right | ended |\n|---|---|---|---|")
    for task in sorted(scores, key=lambda name: (name == "all", name)):
        print(scores[task].row(task))


if __name__ == "__main__":
    main()
