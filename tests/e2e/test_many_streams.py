"""Many streams at once: each is what it would be alone, and nothing is left over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import DEADLINE_S, ServerProcess, eventually

pytestmark = pytest.mark.slow

NUM_STREAMS = 32


def _body(number: int, temperature: float) -> dict[str, Any]:
    """Prompts of several lengths, so that prefills and decodes meet in one step."""
    story = "The river runs past the mill. " * (number % 5)
    return {
        "messages": [{"role": "user", "content": f"{story}Count from {number} to {number + 40}."}],
        "temperature": temperature,
        "top_p": 1,
        "seed": 1000 + number,
        "max_tokens": 24,
        "ignore_eos": True,
    }


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_32_streams_equal_their_whole_twins(brooklet: ServerProcess, temperature: float) -> None:
    """32 concurrent streams all end, each with the text of the same request alone and whole."""
    bodies = [_body(number, temperature) for number in range(NUM_STREAMS)]
    path = "/v1/chat/completions"
    alone = [brooklet.text(body, path) for body in bodies]
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        futures = [pool.submit(brooklet.stream_text, body, path) for body in bodies]
        streamed = [future.result(DEADLINE_S) for future in futures]

    assert alone == streamed
    assert len(set(alone)) > NUM_STREAMS // 2
    eventually(brooklet.is_idle, "no sequence and no block is left")
