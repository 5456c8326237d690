"""Seed 002, streaming tokens: `/generate`."""

from __future__ import annotations

import pytest
import requests
from harness import ServerProcess, eventually
from wire import RunExample, chunks_of, run_text

pytestmark = pytest.mark.slow

SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "frequency_penalty": 0.9}
BODY = {"prompt": "What can you do?", "preset": "few-shot", "max_tokens": 30, "seed": 5}


def _post(server: ServerProcess, **fields: object) -> requests.Response:
    return requests.post(f"{server.url}/generate", json=BODY | fields, timeout=60)


def test_req_17_the_fields_and_the_few_shot_preset(brooklet: ServerProcess) -> None:
    """All fields count; the preset's examples stand before the prompt, its stop strings hold."""
    response = _post(brooklet, **SAMPLING, stop=["<|system|>", "<|user|>"])
    text = response.text
    run = brooklet.client.get(f"/v1/runs/{response.headers['x-run-id']}").json()
    plain = _post(brooklet, preset="plain", max_tokens=1)
    short = brooklet.client.get(f"/v1/runs/{plain.headers['x-run-id']}").json()

    assert (200, run["choices"][0]["text"]) == (response.status_code, text)
    assert run["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"] + 50
    assert "<|user|>" not in text


def test_req_17_a_stop_string_ends_the_text(scripted: ServerProcess) -> None:
    """The text ends before a stop string of the request; it is never shown in part."""
    whole = _post(scripted, max_tokens=40).text
    stop = whole[20:23]
    cut = _post(scripted, max_tokens=40, stop=[stop]).text

    assert whole[: whole.index(stop)] == cut


def test_req_17_each_sampling_field_counts(brooklet: ServerProcess) -> None:
    """`top_k` of one is greedy, a penalty changes what is said, and wrong values are named."""
    count = {"prompt": "Count from 1 to 20", "max_tokens": 60}  # each comma is fined anew
    greedy = _post(brooklet, **count, temperature=0, frequency_penalty=0).text
    top_1 = _post(brooklet, **count, temperature=2, top_k=1, frequency_penalty=0).text
    fined = _post(brooklet, **count, temperature=0, frequency_penalty=2).text

    assert greedy == top_1 != fined
    for field in ("top_k", "top_p", "frequency_penalty", "temperature", "max_tokens"):
        refused = _post(brooklet, **{field: -5})
        assert (400, field) == (refused.status_code, refused.json()["error"]["param"])


def test_req_18_chunks_are_deltas(scripted: ServerProcess) -> None:
    """Each chunk on the wire is what is new since the one before; together they are the text."""
    chunks = chunks_of(scripted, "/generate", BODY | {"max_tokens": 60})
    response = _post(scripted, max_tokens=60)

    assert len(chunks) > 1
    assert b"".join(chunks) == response.content
    assert run_text(scripted, response.headers["x-run-id"]) == response.content.decode()


def test_req_19_a_prompt_beyond_the_context_is_refused(brooklet: ServerProcess) -> None:
    """`--max-model-len` bounds prompt and answer; the error names field and code."""
    refused = _post(brooklet, prompt="no " * 5000).json()["error"]

    assert ("prompt", "context_length_exceeded") == (refused["param"], refused["code"])


def test_req_22_no_chunk_ends_within_a_character(scripted: ServerProcess) -> None:
    """Every chunk decodes by itself, though characters take up to several tokens."""
    chunks = chunks_of(scripted, "/generate", BODY | {"max_tokens": 300})

    assert any(byte > 127 for byte in b"".join(chunks))
    assert all(chunk.decode("utf-8") for chunk in chunks)


def test_req_22_who_leaves_aborts(scripted: ServerProcess) -> None:
    """The engine has nothing to do as soon as the connection is closed."""
    body = BODY | {"max_tokens": 3000}
    with requests.post(f"{scripted.url}/generate", json=body, stream=True, timeout=60) as response:
        chunks = response.iter_content(chunk_size=None)
        assert next(chunks)
        run = f"/v1/runs/{response.headers['x-run-id']}"
    eventually(scripted.is_idle, "nothing is generated any more")

    assert scripted.client.get(run).json()["last_seq"] < 3000


def test_a_preset_of_the_user_s(brooklet: ServerProcess) -> None:
    """A file of `--presets-dir` gives the template and the settings."""
    response = _post(brooklet, preset="count", max_tokens=None, prompt="4")
    text = response.text
    run = brooklet.client.get(f"/v1/runs/{response.headers['x-run-id']}").json()
    same = {"prompt": "1 2 3 4", "max_tokens": 5, "temperature": 0}

    assert run["usage"]["completion_tokens"] <= 5
    assert brooklet.text(same) == text


def test_the_client_program(brooklet: ServerProcess, run_example: RunExample) -> None:
    """`examples/generate.py` prints the text."""
    assert run_example("generate.py", brooklet.url, "Hello!").strip()
