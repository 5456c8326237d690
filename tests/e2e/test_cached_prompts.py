"""Conversations and equal prompts: what was computed once is not computed again."""

from __future__ import annotations

from typing import Any

import pytest
from harness import ServerProcess

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
BLOCK_SIZE, NUM_TURNS = 16, 10


def _usage(answer: dict[str, Any]) -> tuple[int, int]:
    """Prompt tokens, and how many of them were cached."""
    usage = answer["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def _counters(server: ServerProcess) -> tuple[float, float]:
    metrics = server.metrics()
    return metrics["prefix_cache_queries_total"], metrics["prefix_cache_hits_total"]


def test_a_conversation_prefills_only_its_new_turns(brooklet: ServerProcess) -> None:
    """Ten turns: each computes what it adds, and what of the last block was not full."""
    queries, hits = _counters(brooklet)
    messages: list[dict[str, str]] = []
    usages = [(0, 0)]
    for turn in range(NUM_TURNS):
        messages.append({"role": "user", "content": f"Tell me about animal number {turn}."})
        body = {"messages": messages, "max_tokens": 12, "temperature": 0}
        answer = brooklet.post(CHAT, body).json()
        messages.append(answer["choices"][0]["message"])
        num_tokens, num_cached = _usage(answer)
        assert num_tokens - num_cached <= num_tokens - usages[-1][0] + BLOCK_SIZE
        usages.append((num_tokens, num_cached))

    assert usages[-1][1] > usages[1][0] + BLOCK_SIZE
    new_queries, new_hits = _counters(brooklet)
    assert sum(num_tokens for num_tokens, _ in usages) == new_queries - queries
    assert sum(num_cached for _, num_cached in usages) == new_hits - hits


def test_cached_tokens_are_told_streamed_and_whole(brooklet: ServerProcess) -> None:
    """The second time all full blocks but the last token's come from the cache."""
    body = {"prompt": list(range(300, 350)), "max_tokens": 2, "seed": 1}

    usages = [_usage(brooklet.post("/v1/completions", body).json()) for _ in range(2)]
    with brooklet.stream(body | {"stream_options": {"include_usage": True}}) as stream:
        usages += [_usage(f.json) for f in stream if f.data != "[DONE]" and f.json.get("usage")]

    assert [(50, 0), (50, 48), (50, 48)] == usages


def test_choices_share_their_prompt(brooklet: ServerProcess) -> None:
    """Eight choices of one prompt compute it once."""
    queries, hits = _counters(brooklet)
    body = {"prompt": list(range(400, 450)), "n": 8, "max_tokens": 2}

    assert (50, 0) == _usage(brooklet.post("/v1/completions", body).json())

    new_queries, new_hits = _counters(brooklet)
    assert (8 * 50, 7 * 48) == (new_queries - queries, new_hits - hits)


def test_without_the_cache_nothing_is_kept(guessing: ServerProcess) -> None:
    """`--no-enable-prefix-caching`: the same prompt is computed again."""
    body = {"prompt": list(range(300, 350)), "max_tokens": 2, "priority": 3}

    usages = [_usage(guessing.post("/v1/completions", body).json()) for _ in range(2)]

    assert [(50, 0)] * 2 == usages
    assert (0, 0) == _counters(guessing)
