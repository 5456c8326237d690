"""The evaluator: asks a server for held-out items, greedily, and prints the share that is right."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random

from openai import AsyncOpenAI
from tqdm.asyncio import tqdm

from training.brooklet_t5.corpus import TASKS
from training.brooklet_t5.example import Example, draw
from training.brooklet_t5.model import ARTEFACTS
from training.evaluation import Score, evaluate, parse_arguments

LONGEST_OUTPUT = 100  # tokens; the longest right ones have half as many
AT_ONCE = 32


async def answer(client: AsyncOpenAI, model: str, source: str) -> tuple[str, bool]:
    """The model's output for an input, and whether it ended by itself."""
    completion = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": source}],
        temperature=0,
        max_tokens=LONGEST_OUTPUT,
    )
    choice = completion.choices[0]
    return choice.message.content or "", choice.finish_reason == "stop"


async def score_all(url: str, model: str, examples: list[Example]) -> dict[str, Score]:
    """Ask for all examples, some at a time; only the exact output is right."""
    gate = asyncio.Semaphore(AT_ONCE)
    scores: dict[str, Score] = defaultdict(Score)

    async def one(client: AsyncOpenAI, example: Example) -> None:
        async with gate:
            output, ended = await answer(client, model, example.source)
        for task in (example.task, "all"):
            scores[task].asked += 1
            scores[task].right += output == example.target
            scores[task].ended += ended
        if output != example.target:
            mistake = f"{example.source!r} got {output!r}, wanted {example.target!r}"
            scores[example.task].mistakes.append(mistake)

    async with AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:
        await tqdm.gather(*(one(client, example) for example in examples))
    return scores


def main() -> None:
    """Ask a server, and print what came of it."""
    arguments = parse_arguments(__doc__, folder=ARTEFACTS, model="brooklet-t5", cases=200)
    rng = Random(arguments.seed)
    examples = [draw(task, rng, held_out=True) for task in TASKS for _ in range(arguments.cases)]
    evaluate(arguments, lambda url: score_all(url, arguments.model, examples))


if __name__ == "__main__":
    main()
