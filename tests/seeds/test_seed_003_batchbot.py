"""Seed 003, Batchbot: requests that begin together and end apart, requirement 25."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from compat_server import lines_of, serving
from harness import Frame, ServerProcess, eventually, stays

pytestmark = pytest.mark.slow

#: The second request comes long before that.
WAIT_S = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Batches of two, as the Batchbot has them, and more patience than it."""
    flags = ("brooklet", "--max-batch-size", "2", "--batch-wait-timeout-s", str(WAIT_S))
    with serving(tmp_path_factory.mktemp("server"), *flags) as server:
        yield server


def frames(server: ServerProcess, **fields: Any) -> list[Frame]:  # noqa: ANN401 - JSON
    """All of a stream."""
    body = {"messages": [{"role": "user", "content": "Count to 500."}]} | fields
    with server.stream(body | {"temperature": 0}, "/v1/chat/completions") as stream:
        return list(stream)


def text(stream: Future[list[Frame]]) -> str:
    return "".join(frame.text for frame in stream.result())


def test_req_25_two_begin_together_and_end_apart(server: ServerProcess) -> None:
    """The first waits for the second; each gets its own row, and a short one ends by itself."""
    hello = [{"role": "user", "content": "Hello!"}]
    with ThreadPoolExecutor(2) as clients:
        long = clients.submit(frames, server, max_tokens=400, ignore_eos=True)
        eventually(lambda: server.metrics()["prompt_tokens_total"] > 0, "the first is accepted")
        assert stays(lambda: server.metrics()["generation_tokens_total"] == 0, 0.3)
        short = clients.submit(frames, server, messages=hello, max_tokens=8)
        short.result()
        was_over = long.done()

    assert not was_over
    assert text(long).startswith("1, 2, 3")
    assert "1, 2" not in text(short) != ""
    assert "Count" not in text(long)  # the prompt is not said again
    waits = [float(line["queue_s"]) for line in lines_of(server, "run begins")]
    assert 2 == len(waits)
    assert max(waits) < WAIT_S


def test_req_25_choices_of_one_request_fill_a_batch(server: ServerProcess) -> None:
    """Two choices are two rows."""
    stream = frames(server, n=2, max_tokens=5, ignore_eos=True)

    assert ["length", "length"] == [f.finish_reason for f in stream if f.finish_reason]
