"""The evaluator: asks a server for held-out items, greedily, and prints the share that is right."""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from pathlib import Path
from random import Random

from openai import AsyncOpenAI
from tqdm.asyncio import tqdm

from training.brooklet.evaluate import Score, serving, table
from training.brooklet_t5.corpus import TASKS
from training.brooklet_t5.example import Example, draw
from training.brooklet_t5.model import ARTEFACTS

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


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ARTEFACTS, help="the model to serve")
    parser.add_argument("--url", help="ask this server instead, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="brooklet-t5", help="its name at the server")
    parser.add_argument("--quantization", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=200, help="of each task")
    parser.add_argument("--mistakes", type=int, default=0, help="show so many of each task")
    return parser.parse_args()


def main() -> None:
    """Print a Markdown table of scores, and the mistakes if wanted."""
    arguments = parse_arguments()
    rng = Random(arguments.seed)
    examples = [draw(task, rng, held_out=True) for task in TASKS for _ in range(arguments.cases)]
    if arguments.url:
        scores = asyncio.run(score_all(arguments.url, arguments.model, examples))
    else:
        with serving(arguments.folder, arguments.model, arguments.quantization) as url:
            scores = asyncio.run(score_all(url, arguments.model, examples))
    print(*table(scores), sep="\n")
    for task, score in scores.items():
        for mistake in score.mistakes[: arguments.mistakes]:
            print(f"{task}: {mistake}")


if __name__ == "__main__":
    main()
