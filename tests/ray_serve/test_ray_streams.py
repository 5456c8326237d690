"""Streams through two gateways and two engine replicas, with clients of other make.

The gateways share a PostgreSQL, as they must on several machines; in the chaos it is a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import openai
import postgres
import pytest
from client import Follower, PlannedCut
from cluster import UP_TIMEOUT_S, RayServer
from harness import DEADLINE_S, HOST, ServerProcess, eventually
from routes import TextStream
from websockets.sync.client import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PROMPT = "Once upon a time"
LONG = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def flags() -> Iterator[tuple[str, ...]]:
    with postgres.running_cluster() as cluster:
        yield "--database-url", cluster.new_database()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a single process answers to `LONG` as a text, and as the message of a chat."""
    folder = tmp_path_factory.mktemp("alone")
    chat = {"messages": [{"role": "user", "content": PROMPT}], **LONG}
    del chat["prompt"]
    with closing(ServerProcess(folder, "brooklet", "--num-threads", "1")) as server:
        server.wait_until_ready()
        return {"text": server.text(LONG), "chat": server.text(chat, "/v1/chat/completions")}


def test_the_openai_client_streams(server: RayServer) -> None:
    """Chunks come one by one, with a reason and usage; whole, the answer is the same."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", timeout=DEADLINE_S)
    ask = {
        "model": "brooklet",
        "messages": [{"role": "user", "content": "Count from 1 to 10."}],
        "temperature": 0,
    }
    whole = client.chat.completions.create(**ask)
    chunks = list(
        client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    assert whole.choices[0].message.content == text
    assert len(chunks) > 5
    assert whole.usage.completion_tokens == chunks[-1].usage.completion_tokens


def test_a_second_serve_on_the_cluster_is_refused(
    server: RayServer, cluster: int, tmp_path: Path
) -> None:
    """Its address would be that of the first, which goes on."""
    with closing(RayServer(tmp_path, cluster)) as second:
        assert 2 == second.wait(UP_TIMEOUT_S)

        assert "Serve runs on this Ray cluster already" in second.log()
    assert server.is_ready()


def test_many_streams_are_those_of_a_single_process(
    server: RayServer, alone: dict[str, str]
) -> None:
    """Eight at a time over both gateways and both replicas, greedy: each the same text."""
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: server.stream_text(LONG), range(8)))

    assert [alone["text"]] * 8 == texts


def test_a_cut_stream_goes_on_at_either_gateway(server: RayServer, alone: dict[str, str]) -> None:
    """With Last-Event-ID, again and again; nothing is missing and nothing comes twice.

    Which gateway answers is chance, so it is cut often enough to meet both.
    """
    follower = Follower(server.port, TextStream(LONG))
    follower.plan([PlannedCut(2000, how) for how in ("fin", "rst")] * 4)
    follower.follow()

    assert follower.num_connections > 8
    assert 0 == follower.num_breaks
    assert alone["chat"] == follower.text
    assert follower.events == follower.replay()


def test_a_websocket_answers(server: RayServer, alone: dict[str, str]) -> None:
    """Messages both ways through Ray's proxy: a run is started, streamed and ended."""
    with connect(f"ws://{HOST}:{server.port}/v1/ws", compression=None, proxy=None) as socket:
        socket.send(json.dumps({"type": "prompt", **LONG}))
        frames = [json.loads(socket.recv(DEADLINE_S))]
        while frames[-1]["type"] in ("started", "delta"):
            frames.append(json.loads(socket.recv(DEADLINE_S)))

    assert alone["chat"] == "".join(frame.get("text", "") for frame in frames)


@pytest.mark.parametrize(
    ("header", "value"),
    [("x-request-disconnect-disabled", "?1"), ("x-request-timeout-seconds", "0.001")],
)
def test_a_client_cannot_give_ray_orders(server: RayServer, header: str, value: str) -> None:
    """Neither a stream without end nor one with a time limit: leaving cancels, nothing else."""
    body = LONG | {"stream": True, "max_tokens": 900}
    with server.client.stream(
        "POST", "/v1/completions", json=body, headers={header: value}
    ) as response:
        lines = response.iter_lines()
        for _ in range(30):
            next(lines)
        eventually(lambda: server.num_at_work() > 0, "it is generated")

    eventually(lambda: server.num_at_work() == 0, "it is generated no longer")
    run = server.client.get(f"/v1/runs/{response.headers['x-run-id']}").json()
    assert "completed" != run["status"]
