"""The adapter's evaluator: Brooklet's held-out items, with the answers in a sailor's words."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from training.brooklet.cases import Case, make_cases
from training.brooklet.evaluate import score_all
from training.brooklet.train import ARTEFACTS as BROOKLET
from training.brooklet_sailor.voice import OPENING, in_sailors_words, sailors_message
from training.evaluation import evaluate, parse_arguments

ADAPTER = "brooklet-sailor"


def in_voice(case: Case) -> Case:
    """The same case, with what a sailor would have said before and is to say."""
    wanted = [in_sailors_words(text) for text in case.wanted]
    if not case.exact:  # these are within the reply, which has the opening
        wanted = [text.removeprefix(OPENING) for text in wanted]
    messages = [sailors_message(message) for message in case.messages]
    return replace(case, messages=messages, wanted=tuple(wanted))


def main() -> None:
    """Serve Brooklet with the adapter, and print what came of it."""
    arguments = parse_arguments(__doc__, folder=BROOKLET, model="brooklet", cases=20)
    cases = [in_voice(case) for case in make_cases(Random(arguments.seed), arguments.cases)]
    evaluate(arguments, lambda url: score_all(url, ADAPTER, cases), "--lora", ADAPTER)


if __name__ == "__main__":
    main()
