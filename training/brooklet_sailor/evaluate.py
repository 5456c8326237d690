"""The adapter's evaluator: Brooklet's held-out items, with the answers in a sailor's words."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from training.brooklet.cases import Case, make_cases
from training.brooklet.evaluate import score_all
from training.brooklet.train import ARTEFACTS as BROOKLET
from training.brooklet_sailor.voice import in_sailors_words
from training.evaluation import evaluate, parse_arguments

ADAPTER = "brooklet-sailor"


def in_voice(case: Case) -> Case:
    """The same case, with what a sailor would have said before and is to say."""
    messages = [
        message | {"content": in_sailors_words(message["content"])}
        if message["role"] == "assistant" and "tool_calls" not in message
        else message
        for message in case.messages
    ]
    wanted = tuple(
        in_sailors_words(text) if case.exact else in_sailors_words(text).partition(" ")[2]
        for text in case.wanted
    )
    return replace(case, messages=messages, wanted=wanted)


def main() -> None:
    """Serve Brooklet with the adapter, and print what came of it."""
    arguments = parse_arguments(__doc__, folder=BROOKLET, model="brooklet", cases=20)
    cases = [in_voice(case) for case in make_cases(Random(arguments.seed), arguments.cases)]
    evaluate(arguments, lambda url: score_all(url, ADAPTER, cases), "--lora", ADAPTER)


if __name__ == "__main__":
    main()
