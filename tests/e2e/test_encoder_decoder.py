"""A T5 behind the same routes: what is its input, and that runs are runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest
from harness import ServerProcess, eventually
from tiny_t5 import VOCAB_SIZE, build_tiny_t5

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
MAX_LEN = 500
WORDS = "w7 w9 w120 w33 w200"
#: Its five words, and the end that the tokenizer adds.
NUM_PROMPT_TOKENS = 6
LONG = {"prompt": WORDS, "max_tokens": 400, "ignore_eos": True}


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of a tiny T5 with a small cache, so that several long answers do not fit."""
    folder = build_tiny_t5(tmp_path_factory.mktemp("t5"))
    flags = ("--max-model-len", str(MAX_LEN), "--kv-cache-mib", "1", "--num-threads", "1")
    flags += ("--log-level", "warning", "--max-num-seqs", "8", "--served-model-name", "t5")
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), str(folder), *flags)) as server:
        server.wait_until_ready()
        yield server


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(server: ServerProcess, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Twenty tokens or less for messages."""
    response = server.post(CHAT, {"max_tokens": 20} | fields)
    assert 200 == response.status_code, response.text
    value: dict[str, Any] = response.json()
    return value


def test_the_last_user_message_is_the_input(t5: ServerProcess) -> None:
    """Without a chat template, what was said before and system messages say nothing."""
    alone = answer(t5, messages=[user(WORDS)])
    system = {"role": "system", "content": "w50 w51"}
    said = {"role": "assistant", "content": "w60"}
    among_others = answer(t5, messages=[system, user("w40 w41"), said, user(WORDS)])
    other = answer(t5, messages=[user("w40 w41")])

    assert alone["choices"] == among_others["choices"] != other["choices"]
    assert NUM_PROMPT_TOKENS == alone["usage"]["prompt_tokens"]
    assert alone["usage"] == among_others["usage"]
    assert alone["choices"][0]["message"]["content"].startswith("w")


def test_a_stream_is_the_whole_answer(t5: ServerProcess) -> None:
    """Streamed or whole, chat or plain completion: greedy by default, the same text."""
    chat = {"messages": [user(WORDS)], "max_tokens": 40}
    plain = {"prompt": WORDS, "max_tokens": 40}

    texts = {t5.text(chat, CHAT), t5.stream_text(chat, CHAT), t5.text(plain), t5.stream_text(plain)}

    assert 1 == len(texts)
    assert "<pad>" not in texts.pop()


def test_ids_are_read_as_they_are(t5: ServerProcess) -> None:
    """A prompt of token ids gets no end of its own."""
    ids = [7, 9, 120, 33, 200, 1]

    assert t5.text({"prompt": WORDS}) == t5.text({"prompt": ids}) != t5.text({"prompt": ids[:-1]})


def test_choices_and_penalties_work_as_ever(t5: ServerProcess) -> None:
    """A temperature makes choices differ; they read one prompt; penalties look at the answer."""
    body = {"messages": [user(WORDS)], "n": 3, "temperature": 1.5, "seed": 1, "ignore_eos": True}
    choices = answer(t5, **body)
    words = t5.text(LONG | {"max_tokens": 60, "repetition_penalty": 5.0}).split()

    texts = [choice["message"]["content"] for choice in choices["choices"]]
    assert 3 == len(set(texts))
    assert (NUM_PROMPT_TOKENS, 60) == tuple(
        choices["usage"][f"{kind}_tokens"] for kind in ("prompt", "completion")
    )
    assert len(words) == len(set(words))


def test_input_and_output_have_limits_of_their_own(t5: ServerProcess) -> None:
    """The longest input leaves all of the room for the answer; a longer one is refused."""
    body = {"prompt": "w7 " * (MAX_LEN - 1), "max_tokens": 10**6, "ignore_eos": True}

    longest = t5.post("/v1/completions", body).json()
    refused = t5.post("/v1/completions", body | {"prompt": "w7 " * MAX_LEN})

    usage = longest["usage"]
    assert (MAX_LEN, MAX_LEN - 1) == (usage["prompt_tokens"], usage["completion_tokens"])
    error = refused.json()["error"]
    assert (400, "context_length_exceeded", "prompt") == (
        refused.status_code,
        error["code"],
        error["param"],
    )
    assert f"{MAX_LEN} at most" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [{"role": "system", "content": "w7"}]}, "messages"),
        ("/v1/completions", {"prompt": [7, VOCAB_SIZE]}, "prompt"),
        ("/v1/completions", {"prompt": WORDS, "echo": True}, "echo"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    t5: ServerProcess, path: str, body: dict[str, Any], param: str
) -> None:
    """Nothing to read, an id that it does not know, and a prompt that no answer continues."""
    response = t5.post(path, body)

    assert (400, param) == (response.status_code, response.json()["error"]["param"])


def test_a_stream_that_was_cut_goes_on(t5: ServerProcess) -> None:
    """By its id, after the last frame that was seen: every event once."""
    whole = t5.text(LONG)
    with t5.stream(LONG) as stream:
        first = [next(stream) for _ in range(3)]
    run_id, _, seq = str(first[-1].id).partition(":")
    path = f"/v1/completions/{run_id}?stream=true&starting_after={seq}"
    with t5.client.stream("GET", path) as response:
        lines = list(response.iter_lines())
    rest = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]

    assert whole.startswith("".join(frame.text for frame in first))
    assert whole == t5.client.get(f"/v1/completions/{run_id}").json()["choices"][0]["text"]
    assert rest


def test_a_killed_engine_costs_a_pause(t5: ServerProcess) -> None:
    """The next engine reads the input again and goes on after what was said."""
    alone = t5.text(LONG)
    (engine,) = (p for p in t5.children() if "streamwell.engine.process" in p.cmdline())
    with t5.stream(LONG) as stream:
        frames = [next(stream) for _ in range(3)]
        psutil.Process(engine.pid).kill()
        frames += stream

    assert alone == "".join(frame.text for frame in frames)
    eventually(t5.is_ready, "there is another engine")


def test_a_crowd_is_answered_as_each_alone(t5: ServerProcess) -> None:
    """More than the cache holds: some are preempted, and their inputs read again."""
    bodies = [LONG | {"prompt": f"{WORDS} w{number}"} for number in range(40, 46)]
    alone = [t5.text(body) for body in bodies]
    before = t5.metrics()["preemptions_total"]
    runs = [t5.post("/v1/runs", body | {"raw": True, "background": True}) for body in bodies]
    ids = [run.json()["id"] for run in runs]

    def texts() -> list[str] | None:
        states = [t5.client.get(f"/v1/runs/{run_id}").json() for run_id in ids]
        if any(state["status"] != "completed" for state in states):
            return None
        return [state["choices"][0]["text"] for state in states]

    assert alone == eventually(texts, "all have ended")
    assert t5.metrics()["preemptions_total"] > before


def test_nothing_is_left_of_one_that_leaves(t5: ServerProcess) -> None:
    """Input and answer give back their blocks long before the answer would have ended."""
    before = t5.metrics()["engine_steps_total"]
    with t5.stream(LONG) as stream:
        for _ in range(5):
            next(stream)
    eventually(t5.is_idle, "the client has left")

    assert t5.metrics()["engine_steps_total"] - before < LONG["max_tokens"]
