"""Several models and adapters in one server: loaded and unloaded while others answer."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from brooklet_lora import build_brooklet_lora
from harness import DEADLINE_S, ServerProcess, StartServer, eventually
from tiny_t5 import build_tiny_t5

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

LOAD, UNLOAD = "/v1/models/load", "/v1/models/unload"
NUM_STREAMS = 32
ADAPTERS = ("polite", "curt")
GREEDY = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
#: What a stream is asked for that is to last until it is cut or waited for.
LONG = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}


@dataclass(frozen=True, slots=True)
class Site:
    """A server of the built-in model with two adapters, of a T5, and what else it may load."""

    server: ServerProcess
    models_dir: Path

    def card(self, model: str) -> dict[str, Any]:
        card: dict[str, Any] = self.server.client.get(f"/v1/models/{model}").json()
        return card

    def load(self, model: str) -> httpx2.Response:
        return self.server.post(LOAD, {"model": model})

    def unload(self, model: str) -> httpx2.Response:
        return self.server.post(UNLOAD, {"model": model})

    def memory_bytes(self) -> int:
        """What the engines hold; of the server itself only the smallest part belongs to models."""
        return sum(child.memory_info().rss for child in self.server.children())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    t5 = build_tiny_t5(tmp_path_factory.mktemp("t5"))
    models_dir = tmp_path_factory.mktemp("models")
    shutil.copytree(brooklet_path(), models_dir / "third")
    shutil.copytree(brooklet_path(), models_dir / "owner" / "broken")
    (models_dir / "owner" / "broken" / "model.safetensors").write_bytes(b"no weights")
    build_brooklet_lora(models_dir / "owner" / "tone", seed=3)
    flags = ["brooklet", f"t5={t5}", "--models-dir", str(models_dir), "--num-threads", "1"]
    for number, name in enumerate(ADAPTERS):
        folder = build_brooklet_lora(tmp_path_factory.mktemp("lora") / name, seed=number)
        flags += ["--lora", f"{name}={folder}"]
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), *flags)) as server:
        server.wait_until_ready()
        yield Site(server, models_dir)


def _body(number: int) -> dict[str, Any]:
    """Requests for both models and both adapters in turn."""
    model = ("brooklet", "t5", *ADAPTERS)[number % 4]
    if model == "t5":
        words = " ".join(f"w{3 + (number * word) % 290}" for word in range(1, 8))
        return {"model": model, "prompt": words, **GREEDY}
    return {"model": model, "prompt": f"Count from {number // 4} to {number // 4 + 40}.", **GREEDY}


def test_models_are_listed_with_what_is_known_of_them(site: Site) -> None:
    """State, size, context, family and path, also of those that are not loaded."""
    cards = {card["id"]: card for card in site.server.client.get("/v1/models").json()["data"]}

    assert ["brooklet", "t5", *ADAPTERS, "owner/broken", "owner/tone", "third"] == list(cards)
    assert ("ready", "llama", 4096) == _shown(cards["brooklet"])
    assert ("ready", "t5", 2048) == _shown(cards["t5"])
    assert ("unloaded", "llama", 4096) == _shown(cards["third"])
    for name in ADAPTERS:
        assert ("ready", "brooklet") == (cards[name]["status"], cards[name]["parent"])
    size = (brooklet_path() / "model.safetensors").stat().st_size
    assert size == cards["brooklet"]["size_bytes"] == cards["third"]["size_bytes"]
    assert str(site.models_dir / "third") == cards["third"]["path"]
    assert 2048 == cards["t5"]["max_input_len"]


def _shown(card: dict[str, Any]) -> tuple[str, str, int]:
    return card["status"], card["family"], card["context_length"]


def test_a_third_model_comes_and_goes_and_nobody_is_cut(site: Site) -> None:
    """32 mixed streams equal their solo runs while it is loaded, used and unloaded again."""
    bodies = [_body(number) for number in range(NUM_STREAMS)]
    alone = [site.server.text(body) for body in bodies]
    pids = {child.pid for child in site.server.children()}
    before = site.memory_bytes()

    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        answers = []
        for model_is_loaded in range(3):
            answers += [pool.submit(site.server.stream_text, body) for body in bodies]
            if not model_is_loaded:
                assert "ready" == site.load("third").json()["status"]
                loaded = site.memory_bytes()
                text = site.server.text(bodies[0] | {"model": "third"})
                assert "unloaded" == site.unload("third").json()["status"]
        streamed = [answer.result(DEADLINE_S) for answer in answers]

    assert alone * 3 == streamed
    assert len(set(alone)) > NUM_STREAMS // 2
    assert alone[0] == text  # it is a copy of the first
    assert pids == {child.pid for child in site.server.children()}
    # the others' caches have been touched by their streams, so only most of it comes back exactly
    assert site.memory_bytes() - before < (loaded - before) / 2
    eventually(site.server.is_idle, "no sequence and no block is left")


def test_an_adapter_comes_and_goes_while_others_answer(site: Site) -> None:
    """It says something else than its base and the other adapters, and the same each time."""
    body = {"prompt": "Once upon a time", **GREEDY}
    names = ("brooklet", *ADAPTERS)
    alone = [site.server.text(body | {"model": name}) for name in names]
    texts = []
    for _ in range(2):
        with ThreadPoolExecutor(len(names)) as pool:
            answers = [pool.submit(site.server.stream_text, body | {"model": n}) for n in names]
            card = site.server.post(LOAD, {"model": "owner/tone", "base": "brooklet"}).json()
            texts.append(site.server.text(body | {"model": "owner/tone"}))
            unloaded = site.unload("owner/tone").json()
            assert alone == [answer.result(DEADLINE_S) for answer in answers]
        assert ("ready", "brooklet", "unloaded") == (
            card["status"], card["parent"], unloaded["status"]
        )  # fmt: skip

    assert 1 == len(set(texts))
    assert 4 == len({*alone, *texts})


def _load_events(server: ServerProcess, model: str) -> Generator[dict[str, Any]]:
    """The events of a load; leaving early closes the connection."""
    body = {"model": model, "stream": True}
    with server.client.stream("POST", LOAD, json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line:
                yield json.loads(line.removeprefix("data:"))


def test_a_load_tells_how_far_it_is_and_an_unload_waits(site: Site) -> None:
    """Loaded twice it says so at once. New requests are refused while a stream comes to its end.

    Then nothing is left: neither the engine nor the process that renders the template, though a
    client was cut.
    """
    before = {child.pid for child in site.server.children()}
    for _ in range(2):
        *events, card = _load_events(site.server, "third")
        assert ("third", "ready") == (card["id"], card["status"])
        assert {"loading"} >= {event["status"] for event in events}
        assert all(0 <= event["progress"] <= 1 for event in events)
    message = {"messages": [{"role": "user", "content": "Hello!"}], "model": "third"}
    assert 200 == site.server.post("/v1/chat/completions", message).status_code
    assert {child.pid for child in site.server.children()} > before

    body = LONG | {"model": "third"}
    with site.server.stream(body) as frames:
        next(frame for frame in frames if frame.text)
    body["max_tokens"] = 1500
    with site.server.stream(body) as frames, ThreadPoolExecutor(1) as pool:
        next(frame for frame in frames if frame.text)
        unloading = pool.submit(site.unload, "third")
        eventually(lambda: site.card("third")["status"] == "unloading", "it waits")
        refused = site.server.post("/v1/completions", {"model": "third", "prompt": "Hello"})
        rest = list(frames)

    assert (503, "model_unloaded") == (refused.status_code, refused.json()["error"]["code"])
    assert "/v1/models/load" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) > 0
    assert "length" in [frame.finish_reason for frame in rest]
    assert "[DONE]" == rest[-1].data
    assert "unloaded" == unloading.result(DEADLINE_S).json()["status"]
    assert {child.pid for child in site.server.children()} <= before


BAD_LOADS = [
    ({"model": "no"}, 404, "model_not_found"),
    ({"model": "../models"}, 404, "model_not_found"),
    ({"model": "/etc"}, 404, "model_not_found"),
    ({"model": "a" * 300}, 404, "model_not_found"),
    ({"model": ""}, 400, None),
    ({"model": 7}, 400, None),
    ({}, 400, None),
    ({"model": "owner/broken"}, 503, "model_load_failed"),
]


@pytest.mark.parametrize(("body", "status", "code"), BAD_LOADS)
def test_what_cannot_be_loaded_says_why(
    site: Site, body: dict[str, Any], status: int, code: str | None
) -> None:
    """A name that leads elsewhere is no model; a broken folder changes nothing for the others."""
    response = site.server.post(LOAD, body)
    error = response.json()["error"]

    assert (status, code) == (response.status_code, error["code"])
    assert error["message"]
    assert site.server.is_ready()
    assert site.server.text({"prompt": "Hello"})


def test_a_load_that_fails_ends_its_stream_with_the_error(site: Site) -> None:
    """The last event is the error body; the card has the reason; requests get it."""
    *_, last = _load_events(site.server, "owner/broken")
    card = site.card("owner/broken")
    refused = site.server.post("/v1/completions", {"model": "owner/broken", "prompt": "Hello"})

    assert "model_load_failed" == last["error"]["code"]
    assert ("failed", last["error"]["message"]) == (card["status"], card["error"])
    assert (503, "model_load_failed") == (refused.status_code, refused.json()["error"]["code"])
    assert str(site.models_dir) in card["error"]
    assert str(site.models_dir) not in refused.text  # a request may be anybody's


def test_a_folder_that_is_put_there_later_is_loaded_though_the_client_leaves(site: Site) -> None:
    """The folder is looked at again for a name that is new; a load is the server's own affair."""
    shutil.copytree(site.models_dir / "third", site.models_dir / "later")
    with closing(_load_events(site.server, "later")) as events:
        next(events)
    eventually(lambda: site.card("later")["status"] == "ready", "it is loaded")

    assert site.server.text({"model": "later", "prompt": "Hello", "max_tokens": 4})
    assert "unloaded" == site.unload("later").json()["status"]


def test_an_idle_model_is_unloaded_and_comes_back(start_server: StartServer) -> None:
    """The next request loads it, and gets its answer."""
    server = start_server("--idle-unload-s", "1", "--engine", "scripted")
    server.wait_until_ready()
    body = {"prompt": "Hello", "max_tokens": 8, "seed": 1}
    text = server.text(body)
    eventually(lambda: _card(server)["status"] == "unloaded", "it is unloaded")

    assert _card(server)["loads_on_request"]
    assert server.is_ready()  # there is nothing that it cannot do
    assert text == server.text(body)


def _card(server: ServerProcess) -> dict[str, Any]:
    card: dict[str, Any] = server.client.get("/v1/models/brooklet").json()
    return card


def test_loading_and_unloading_are_for_operators(keyed: ServerProcess) -> None:
    """An API key opens everything else; where models lie is not shown to it."""
    user, operator = ({"authorization": f"Bearer sk-{name}"} for name in ("one", "operator"))

    for path in (LOAD, UNLOAD):
        refused = keyed.post(path, {"model": "brooklet"}, headers=user)
        assert 403 == refused.status_code, refused.text
        assert 401 == keyed.post(path, {"model": "brooklet"}).status_code
    for path, status in ((UNLOAD, "unloaded"), (LOAD, "ready")):
        card = keyed.post(path, {"model": "brooklet"}, headers=operator).json()
        assert (status, str(brooklet_path())) == (card["status"], card["path"])
    assert "path" not in keyed.client.get("/v1/models/brooklet", headers=user).json()
    assert 200 == keyed.post("/v1/completions", {"prompt": "a"}, headers=operator).status_code


def test_what_does_not_fit_into_memory_is_refused(start_server: StartServer) -> None:
    """The server says what is needed and what is free, and ends; unless it is told not to look."""
    flags = ("--kv-cache-mib", "99999999")
    server = start_server(*flags)

    assert 2 == server.wait()
    assert "MiB are free" in server.log()


@pytest.mark.parametrize("flags", [("--models-dir", "/nowhere"), ("--lora", "a=/nowhere")])
def test_folders_that_are_not_there_are_told_at_once(
    start_server: StartServer, flags: tuple[str, str]
) -> None:
    """Before a model is loaded for nothing; the flag is named."""
    server = start_server(*flags)

    assert 2 == server.wait()
    assert flags[0] in server.log()
    assert "model is loaded" not in server.log()


def test_a_file_for_a_data_folder_is_told_at_once(start_server: StartServer) -> None:
    """Before the log is opened; the flag is named."""
    server = start_server(data_dir=Path(__file__))

    assert 2 == server.wait()
    assert f"--data-dir {__file__} is no folder" in server.log()


def test_a_run_of_a_later_model_outlives_the_server(
    start_server: StartServer, tmp_path: Path
) -> None:
    """After `kill -9` it goes on as soon as its model is loaded again, whatever engine it has."""
    models_dir, data_dir = tmp_path / "models", tmp_path / "data"
    shutil.copytree(brooklet_path(), models_dir / "third")
    flags = ("--models-dir", str(models_dir), "--engine", "scripted", "--scripted-step-s")
    server = start_server(*flags, "0.1", data_dir=data_dir)
    server.wait_until_ready()
    server.post(LOAD, {"model": "third"})
    body = LONG | {"model": "third", "max_tokens": 200, "seed": 1}
    run_id = server.post("/v1/runs", body | {"raw": True, "background": True}).json()["id"]
    path = f"/v1/runs/{run_id}"
    eventually(lambda: _text(server.client.get(path)), "it has begun")
    server.signal(signal.SIGKILL)
    server.wait()

    again = start_server(*flags, "0.01", data_dir=data_dir)
    again.wait_until_ready()
    assert "in_progress" == again.client.get(path).json()["status"]
    again.post(LOAD, {"model": "third"})
    eventually(lambda: again.client.get(path).json()["status"] == "completed", "it has ended")

    assert again.text(body) == _text(again.client.get(path))


def _text(response: httpx2.Response) -> str:
    text: str = response.json()["choices"][0]["text"]
    return text
