"""The evaluator: asks a running server for held-out items, greedily, and prints a table."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import Any

from openai import AsyncOpenAI
from tqdm.asyncio import tqdm

from training.brooklet.cases import Case, make_cases
from training.brooklet.train import ARTEFACTS
from training.evaluation import Score, evaluate, parse_arguments

LONG_TASKS = {"count far", "long story"}
LONG_REPLY, USUAL_REPLY = 2600, 900  # tokens; a model that does not end is cut there
AT_ONCE = 16


@dataclass
class Answer:
    """What the server gave back."""

    text: str
    calls: list[tuple[str, Any]]  # name and arguments of each tool call
    ended: bool  # by itself, not for want of room


def wire_messages(messages: list[dict[str, Any]]) -> list[Any]:
    """Put chat messages the way the API wants them: arguments as text, calls with ids."""
    wired: list[Any] = []
    ids: list[str] = []
    for message in messages:
        wire = dict(message)
        if "tool_calls" in message:
            ids = [f"call_{len(wired)}_{index}" for index in range(len(message["tool_calls"]))]
            wire["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
                    },
                }
                for call_id, call in zip(ids, message["tool_calls"], strict=True)
            ]
        if message["role"] == "tool":
            wire["tool_call_id"] = ids.pop(0)
        wired.append(wire)
    return wired


async def ask(client: AsyncOpenAI, model: str, case: Case) -> Answer:
    """Ask for the next message of a conversation."""
    options: dict[str, Any] = {"tools": case.tools} if case.tools else {}
    if case.thinks:
        options["extra_body"] = {"chat_template_kwargs": {"enable_thinking": True}}
    completion = await client.chat.completions.create(
        model=model,
        messages=wire_messages(case.messages),
        temperature=0,
        max_tokens=LONG_REPLY if case.task in LONG_TASKS else USUAL_REPLY,
        **options,
    )
    choice = completion.choices[0]
    calls = []
    for call in choice.message.tool_calls or ():
        try:
            calls.append((call.function.name, json.loads(call.function.arguments)))
        except ValueError:
            calls.append((call.function.name, call.function.arguments))
    return Answer(choice.message.content or "", calls, choice.finish_reason != "length")


def is_right(case: Case, answer: Answer) -> bool:
    """Compare the calls where the case wants some, and the text where it does not."""
    if case.calls:
        return answer.calls == case.calls
    text = answer.text
    return not answer.calls and any(
        text == wanted if case.exact else wanted in text for wanted in case.wanted
    )


async def answer_all(url: str, model: str, cases: list[Case]) -> AsyncIterator[tuple[Case, Answer]]:
    """Ask all cases, some at a time."""
    client = AsyncOpenAI(base_url=url, api_key="none", timeout=600)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> tuple[Case, Answer]:
        async with gate:
            return case, await ask(client, model, case)

    for done in tqdm.as_completed([one(case) for case in cases]):
        yield await done


async def score_all(url: str, model: str, cases: list[Case]) -> dict[str, Score]:
    """Score every task, and all of them together."""
    scores: dict[str, Score] = defaultdict(Score)
    async for case, answer in answer_all(url, model, cases):
        right = is_right(case, answer)
        for task in (case.task, "all"):
            scores[task].asked += 1
            scores[task].right += right
            scores[task].ended += answer.ended
        if not right:
            prompt = case.messages[-1]["content"]
            got = answer.calls or answer.text
            scores[case.task].mistakes.append(
                f"{prompt!r} got {got!r}, wanted {case.calls or case.wanted!r}"
            )
    return scores


def main() -> None:
    """Ask a server, and print what came of it."""
    arguments = parse_arguments(__doc__, folder=ARTEFACTS, model="brooklet", cases=50)
    cases = make_cases(Random(arguments.seed), arguments.cases)
    evaluate(arguments, lambda url: score_all(url, arguments.model, cases))


if __name__ == "__main__":
    main()
