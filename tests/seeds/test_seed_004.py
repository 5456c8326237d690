"""Seed 004, transformers-openai-api: its clients and its environment, requirements 28 to 37."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from compat_server import EXAMPLES, compatible, line_of, lines_of, serving
from harness import ServerProcess, eventually, stays
from openai import OpenAI
from transformers import PreTrainedTokenizerFast

from streamwell.models import brooklet_path
from streamwell.settings import COMPAT

pytestmark = pytest.mark.slow

CHAT = "/chat/completions"
MAX_CONCURRENT = 4
ENVIRONMENT = {
    "MAX_CONCURRENT": str(MAX_CONCURRENT),
    "LOGLEVEL": "INFO",
    "TORCH_DTYPE": "float32",
    "ACCELERATOR_TYPE": "cpu",
    "HQQ": "false",
    "HOSTNAME": "3f2a9c",
    "MODEL_TYPE": "AutoModelForCausalLM",
    "TOKENIZER_TYPE": "AutoTokenizer",
    "TOKENIZER_USE_FAST": "false",
    "ARCHITECTURE_TYPE": "encoder-decoder",
    "CACHE_TYPE": "none",
    "ATTN_IMPLEMENTATION": "eager",
    "HOTLOAD": "true",
    "SERVING_TYPE": "chat",
    "CONTINUOUS_BATCHING_MICROSLEEP": "1e-4",
    "STATIC_CACHE": "false",
    "TORCH_AUTOGRAD_PROFILING": "false",
}
#: What takes all of its tokens, whatever is drawn.
LONG = {"ignore_eos": True, "temperature": 0}
#: What takes a place for minutes.
ENDLESS = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with compatible(tmp_path_factory.mktemp("server"), ENVIRONMENT) as server:
        yield server


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An engine that takes its time, whatever the machine does."""
    flags = ("brooklet", "--compat", COMPAT, "--engine", "scripted", "--scripted-step-s", "0.05")
    with serving(tmp_path_factory.mktemp("slow"), *flags, environment=ENVIRONMENT) as server:
        yield server


def open_streams(slow: ServerProcess, stack: ExitStack, count: int) -> None:
    """Read the role of so many streams; an iterator that nobody holds would close its own."""
    for _ in range(count):
        stream = stack.enter_context(slow.stream(ENDLESS, CHAT))
        next(stream)
        stack.callback(lambda held: None, stream)


@contextmanager
def full(slow: ServerProcess) -> Iterator[ExitStack]:
    """All places are taken, by streams in this stack."""
    with ExitStack() as streams:
        open_streams(slow, streams, MAX_CONCURRENT)
        eventually(lambda: slow.metrics()["requests_running"] == MAX_CONCURRENT, "all are taken")
        yield streams


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def ask(server: ServerProcess, text: str = "hello", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    response = server.post(CHAT, {"messages": user(text)} | fields)
    assert 200 == response.status_code, response.text
    value: dict[str, Any] = response.json()
    return value


def said(answer: dict[str, Any]) -> str:
    content: str = answer["choices"][0]["message"]["content"]
    return content


def test_req_28_concurrency_is_bounded_and_caches_are_given_back(server: ServerProcess) -> None:
    """Three times as many streams as `MAX_CONCURRENT`: never more at a time, each whole."""
    body = {"messages": user("Count to 500."), "max_tokens": 60} | LONG
    with ThreadPoolExecutor(3 * MAX_CONCURRENT) as clients:
        streams = [
            clients.submit(server.stream_text, body, CHAT) for _ in range(3 * MAX_CONCURRENT)
        ]
        most = 0.0
        while not all(stream.done() for stream in streams):
            most = max(most, server.metrics()["requests_running"])

    assert 1 == len({stream.result() for stream in streams})
    assert 0 < most <= MAX_CONCURRENT
    eventually(server.is_idle, "no sequence holds a block of the cache")


def test_req_29_its_client_works(server: ServerProcess) -> None:
    """The openai client without `/v1`, with any key and the name `model`, whole and streamed."""
    client = OpenAI(api_key="-", base_url=server.url, max_retries=0)
    fields: dict[str, Any] = {"model": "model", "messages": user("hello"), "temperature": 0}
    whole = client.chat.completions.create(stop=["[/INST]", "[INST]", "<s>"], **fields)
    stream = client.chat.completions.create(stream=True, **fields)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert "model" == whole.model
    assert text == whole.choices[0].message.content != ""


def test_req_29_its_program_runs(server: ServerProcess) -> None:
    """`examples/openai_client.py`, changed in nothing but the port."""
    command = [sys.executable, str(EXAMPLES / "openai_client.py"), server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("ChatCompletion(id='chatcmpl-")


def test_req_30_silence_means_its_defaults(server: ServerProcess) -> None:
    """A request without fields is one with that project's; what it says counts."""
    defaults = {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.0}
    asked = {"seed": 11, "ignore_eos": True}
    silent = ask(server, "Tell me a story.", **asked)
    spoken = ask(server, "Tell me a story.", **asked, **defaults, max_tokens=256, stop=[])
    other = ask(server, "Tell me a story.", **asked | {"temperature": 2.0, "top_k": 0})

    assert said(silent) == said(spoken) != said(other)
    assert (256, "length") == (
        silent["usage"]["completion_tokens"],
        silent["choices"][0]["finish_reason"],
    )
    messages = [*user("hello "), *user("So much to say. " * 1000)]
    long = server.post(CHAT, {"messages": messages, "max_tokens": 1})
    assert 200 == long.status_code, long.text
    assert 2048 == long.json()["usage"]["prompt_tokens"]


def test_req_31_and_32_the_environment_is_read(server: ServerProcess) -> None:
    """One warning names what changes nothing, and only that; the server listens on loopback."""
    warnings = lines_of(server, "environment variables that change nothing here")

    assert 1 == len(warnings)
    ignored = {"MODEL_TYPE", "CACHE_TYPE", "HOTLOAD", "STATIC_CACHE", "TORCH_AUTOGRAD_PROFILING"}
    assert ignored <= set(warnings[0])
    assert not {"MAX_CONCURRENT", "TORCH_DTYPE", "HQQ", "HOSTNAME", "PORT"} & set(warnings[0])
    assert "http://127.0.0.1:" in server.log()


def test_req_33_chunks_and_answers_have_its_shape(server: ServerProcess) -> None:
    """Order of fields and nulls as printed; usage is filled."""
    with server.stream({"messages": user("hello"), "temperature": 0}, CHAT) as frames:
        chunks = [frame.json for frame in frames if frame.data != "[DONE]"]
    whole = ask(server, temperature=0)

    for chunk in chunks:
        assert ["id", "choices", "created", "model", "object", "system_fingerprint"] == list(chunk)
        choice = chunk["choices"][0]
        assert ["delta", "finish_reason", "index", "logprobs"] == list(choice)
        assert ["content", "function_call", "role", "tool_calls"] == list(choice["delta"])
        assert (None, None, "model") == (
            choice["logprobs"],
            chunk["system_fingerprint"],
            chunk["model"],
        )
    assert {"stop_reason": None}.items() <= whole["choices"][0].items()
    assert 0 < whole["usage"]["prompt_tokens"] < whole["usage"]["total_tokens"]


def test_req_34_an_encoder_decoder_behind_the_same_route(server: ServerProcess) -> None:
    """Its input is the message's text; an end that the user wrote is not doubled."""
    fields = {"model": "brooklet-t5", "temperature": 0}
    plain = ask(server, "Write 4027 in words", **fields)
    ended = ask(server, "Write 4027 in words</s>", **fields)
    streamed = server.stream_text({"messages": user("Write 4027 in words</s>")} | fields, CHAT)

    assert said(plain) == said(ended) == streamed != ""
    assert plain["usage"] == ended["usage"]


def test_req_35_the_log_follows_each_run(server: ServerProcess) -> None:
    """By its id: how long it waited, until its first token and in all, how fast, how it ended."""
    run_id = ask(server, max_tokens=20, **LONG)["id"]
    begins, ends = line_of(server, "run begins", run_id), line_of(server, "run ends", run_id)

    assert 0 <= float(begins["queue_s"]) <= float(ends["time_to_first_token_s"])
    assert float(ends["time_to_first_token_s"]) <= float(ends["duration_s"])
    assert float(ends["tokens_per_s"]) > 0
    assert ("length", "20") == (ends["reason"], ends["completion_tokens"])


def test_req_35_time_in_the_queue_is_that_of_the_engine_too(slow: ServerProcess) -> None:
    """Who waits for a place of the batch waits in the queue."""
    with ThreadPoolExecutor(1) as client:
        with full(slow):
            answer = client.submit(ask, slow, max_tokens=1)
            eventually(lambda: slow.metrics()["requests_waiting"] == 1, "it waits")
            assert stays(lambda: slow.metrics()["requests_waiting"] == 1, 0.2)
        run_id = answer.result()["id"]

    assert float(line_of(slow, "run begins", run_id)["queue_s"]) >= 0.2


def test_req_36_the_script_that_disconnects(server: ServerProcess) -> None:
    """`examples/disconnect.py` leaves after some lines; the run stops and is cancelled."""
    command = [sys.executable, str(EXAMPLES / "disconnect.py"), server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    first = next(line for line in done.stdout.splitlines() if line.startswith("data: "))
    run_id = json.loads(first.removeprefix("data: "))["id"]

    line_of(server, "run has lost its last reader", run_id)
    ends = line_of(server, "run ends", run_id)
    assert "cancelled" == ends["reason"]
    assert int(ends["completion_tokens"]) < 256
    eventually(server.is_idle, "nothing runs or holds a block")


def test_req_37_truncate_truncates(server: ServerProcess) -> None:
    """The last tokens stay, the template's marks with them; too few are refused by name."""
    whole = ask(server, "one two three. " * 30 + "What is 2 + 3?", temperature=0)
    cut = ask(server, "one two three. " * 30 + "What is 2 + 3?", temperature=0, truncate=24)
    refused = server.post(CHAT, {"messages": user("hello, my old friend"), "truncate": 3})

    assert whole["usage"]["prompt_tokens"] > cut["usage"]["prompt_tokens"] == 24
    assert (400, "truncate") == (refused.status_code, refused.json()["error"]["param"])
    assert 400 == server.post(CHAT, {"messages": user("a"), "truncate": 0}).status_code


def test_req_37_the_prompt_ends_where_the_assistant_speaks(server: ServerProcess) -> None:
    """The chat template opens the answer, so that the model does not go on with the question."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(brooklet_path())
    opened = tokenizer.apply_chat_template(
        user("Hello!"), add_generation_prompt=True, return_dict=False
    )

    assert len(opened) == ask(server, "Hello!", max_tokens=1)["usage"]["prompt_tokens"]


def test_req_37_temperature_counts(server: ServerProcess) -> None:
    """At 0 every seed says the same; at 2 each says something else."""
    for temperature, num_texts in ((0, 1), (2, 4)):
        options = {"temperature": temperature, "top_p": 1, "top_k": -1, "max_tokens": 16}
        texts = {said(ask(server, "Tell me a story.", seed=n, **options)) for n in range(4)}
        assert num_texts == len(texts)


def test_req_37_stop_strings_are_texts(server: ServerProcess) -> None:
    """Of several tokens, and cut only where they stand."""
    whole = said(ask(server, "Count to 30.", temperature=0))
    assert "9, 10, 1" in whole
    cut = ask(server, "Count to 30.", temperature=0, stop=["9, 10, 1"])

    assert whole.split("9, 10, 1")[0] == said(cut)
    assert "stop" == cut["choices"][0]["finish_reason"]


def test_req_37_a_stream_has_a_beginning_and_an_end(server: ServerProcess) -> None:
    """The role first, the true reason last, usage where it is asked for, then `[DONE]`."""
    body = {"messages": user("Count to 500."), "max_tokens": 5} | LONG
    body |= {"stream_options": {"include_usage": True}}
    with server.stream(body, CHAT) as stream:
        first, *_, last, usage, done = stream

    assert "assistant" == first.json["choices"][0]["delta"]["role"]
    assert "length" == last.finish_reason
    assert (5, "[DONE]") == (usage.json["usage"]["completion_tokens"], done.data)


def test_req_37_errors_are_errors(server: ServerProcess) -> None:
    """A status and an error body, whole or streamed, and never an empty 200."""
    for stream in (False, True):
        bad = server.post(CHAT, {"messages": user("a"), "temperature": -1, "stream": stream})
        unknown = server.post(CHAT, {"messages": user("a"), "model": "none", "stream": stream})
        assert (400, "temperature") == (bad.status_code, bad.json()["error"]["param"])
        assert (404, "model_not_found") == (unknown.status_code, unknown.json()["error"]["code"])


def test_req_37_who_leaves_the_queue_holds_no_place(slow: ServerProcess) -> None:
    """Clients that leave while they wait: who came after them has the next place."""
    with full(slow) as running, ThreadPoolExecutor(1) as client:
        with ExitStack() as waiting:
            open_streams(slow, waiting, 3)  # they have their roles, but no places
            eventually(lambda: slow.metrics()["requests_waiting"] == 3, "they wait")
        eventually(lambda: slow.metrics()["requests_waiting"] == 0, "they are gone")
        last = client.submit(ask, slow, max_tokens=1)
        eventually(lambda: slow.metrics()["requests_waiting"] == 1, "the last one waits")
        running.pop_all().close()
        assert 1 == last.result()["usage"]["completion_tokens"]
