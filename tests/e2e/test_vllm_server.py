"""`streamwell serve --engine vllm` as a process, with vLLM's own processes below it.

Runs where vLLM is installed: in the environment of `make test-vllm`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec

import openai
import psutil
import pytest
from harness import DEADLINE_S, START_TIMEOUT_S, ServerProcess, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(900),
]

#: vLLM imports itself in three processes, one after the other.
UP_S = 4 * START_TIMEOUT_S
FLAGS = ("--engine", "vllm", "--dtype", "float32", "--kv-cache-mib", "64", "--num-threads", "1")
LONG = {"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
#: Not over before somebody who has read its beginning has done something about it.
LONGER = LONG | {"max_tokens": 900}
NUM_STREAMS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The built-in model on vLLM."""
    folder = tmp_path_factory.mktemp("server")
    with closing(ServerProcess(folder, *FLAGS, "--max-num-seqs", "8")) as server:
        eventually(server.is_ready, "vLLM is up", UP_S)
        yield server


def _host(server: ServerProcess) -> psutil.Process:
    """Our child, which vLLM's processes are below."""
    name = "streamwell.backends.vllm.process"
    (host,) = [child for child in server.children() if name in _arguments(child)]
    return host


def _engine_core(server: ServerProcess) -> psutil.Process:
    below = [(child, " ".join(_arguments(child))) for child in _host(server).children()]
    (core,) = [child for child, line in below if line and "resource_tracker" not in line]
    return core


def _arguments(process: psutil.Process) -> list[str]:
    """Those it was started with; none if it has ended, even if nobody has noticed yet."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _has_ended(process: psutil.Process) -> bool:
    """It is gone, or nobody has asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_openai_client_is_served(server: ServerProcess) -> None:
    """A chat, streamed: role, text, one reason, and a usage that adds up."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="brooklet",
            messages=[{"role": "user", "content": "Hello!"}],
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, last = list(stream)

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text
    assert ["stop"] == [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason]
    assert last.usage is not None
    assert last.usage.prompt_tokens + last.usage.completion_tokens == last.usage.total_tokens


def test_greedy_text_is_that_of_our_engine(server: ServerProcess, brooklet: ServerProcess) -> None:
    """The same weights in float32 say the same, whole and streamed, on both engines."""
    alone = brooklet.text(LONG | {"max_tokens": 60})

    assert alone == server.text(LONG | {"max_tokens": 60})
    assert alone == server.stream_text(LONG | {"max_tokens": 60})


def test_what_vllm_does_not_sample_is_refused(server: ServerProcess) -> None:
    """The field is named before anything is generated."""
    response = server.post("/v1/completions", LONG | {"temperature": 3})

    assert (400, "temperature") == (response.status_code, response.json()["error"]["param"])


def test_a_reader_that_leaves_frees_its_place(server: ServerProcess) -> None:
    """With the last reader gone vLLM is told to abort: nothing runs, no block is held."""
    before = server.metrics()["engine_steps_total"]
    with server.stream(LONG | {"max_tokens": 3000}) as stream:
        for _ in range(3):
            next(stream)  # what the engine says of itself has come with it: the server is not idle
    eventually(server.is_idle, "it is aborted")
    steps = server.metrics()["engine_steps_total"] - before

    assert steps < 3000


def test_a_killed_engine_core_costs_a_pause(server: ServerProcess) -> None:
    """Live streams and a waiting answer go on with the next vLLM; no token lost or repeated."""
    eventually(server.is_idle, "others are done")
    alone = server.text(LONGER)
    core = _engine_core(server)
    texts: dict[int, str] = {}
    seqs: dict[int, list[int]] = {}
    begun = threading.Barrier(NUM_STREAMS + 1, timeout=DEADLINE_S)

    def follow(number: int) -> None:
        with server.stream(LONGER) as stream:
            frames = [next(stream) for _ in range(3)]
            begun.wait()
            frames += stream
        texts[number] = "".join(frame.text for frame in frames)
        seqs[number] = [int(str(frame.id).rsplit(":", 1)[1]) for frame in frames]

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(NUM_STREAMS)]
    for thread in threads:
        thread.start()
    begun.wait()
    core.kill()
    for thread in threads:
        thread.join(UP_S)

    assert dict.fromkeys(range(NUM_STREAMS), alone) == texts
    assert all(list(range(len(each))) == each for each in seqs.values())
    assert core.pid != _engine_core(server).pid
    eventually(server.is_idle, "the dead engine's requests are forgotten")


def test_nothing_outlives_the_server(server: ServerProcess) -> None:
    """A server that is killed takes vLLM's processes with it."""
    below = [_host(server), *_host(server).children(recursive=True)]
    psutil.Process(server.pid).kill()

    eventually(lambda: all(map(_has_ended, below)), "they have ended")
