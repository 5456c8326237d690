"""The routes that take a prompt and a preset: frames, plain text, errors, and who may ask."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Answer, Rig, SteppedEngine, run, turns, until

from streamwell.backends.scripted import Faults
from streamwell.core.errors import StoreFailed

pytestmark = pytest.mark.timeout(30)

KEY, OTHER_KEY = "sk-one", "sk-two"
PROMPT = {"prompt": "ab", "preset": "plain", "max_tokens": 3}
STREAM, TEXT, QUERY = "/generate-stream", "/generate", "/query-stream/"


@dataclass
class WholeAnswer(Answer):
    """An answer that knows whether it was ended or cut."""

    is_ended: bool = field(default=False)

    async def send(self, message: dict[str, Any]) -> None:
        await super().send(message)
        self.is_ended |= "body" in message and not message.get("more_body")

    @property
    def text(self) -> str:
        return b"".join(self.bodies).decode()


def _frames(answer: Answer) -> list[tuple[str, str]]:
    """Id and field of each frame."""
    frames = b"".join(answer.bodies).decode().split("\n\n")
    assert "" == frames.pop()
    return [tuple(frame.removeprefix("id: ").split("\n", 1)) for frame in frames]  # type: ignore[misc]


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_the_frames_of_a_stream() -> None:
    """An id on every frame, text as it came, the reason, `[DONE]`; a header names the run."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        answer = await call(rig, "POST", STREAM, PROMPT)
        run_id = answer.headers["x-run-id"]
        assert [
            (f"{run_id}:0", "retry: 1000"),
            (f"{run_id}:1", 'data: {"text":"a"}'),
            (f"{run_id}:2", 'data: {"text":"b"}'),
            (f"{run_id}:3", 'data: {"text":"c"}'),
            (f"{run_id}:4", 'data: {"text":"","finish_reason":"length"}'),
            (f"{run_id}:5", "data: [DONE]"),
        ] == _frames(answer)

    run(test)


@pytest.mark.parametrize("path", [STREAM, QUERY, f"{STREAM}/RUN"])
def test_a_stream_goes_on_after_any_frame(path: str) -> None:
    """The rest comes, nothing is generated anew, and after the end there is nothing."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        answer = await call(rig, "POST", QUERY, {"query": "ab", "max_tokens": 3})
        frames = _frames(answer)
        place = path.replace("RUN", answer.headers["x-run-id"])
        for at, (frame_id, _) in enumerate(frames[:-1], 1):
            again = await call(rig, "GET", place, headers={"last-event-id": frame_id})
            assert frames[at:] == _frames(again)
        last = await call(rig, "GET", place, headers={"last-event-id": frames[-1][0]})
        assert 204 == last.status
        assert 1 == len(rig.engine.request_ids)

    run(test)


def test_a_get_may_say_what_changes_nothing() -> None:
    """Fields that are not served, with values that ask for nothing: in a URL as in a body."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        query = {"prompt": "ab", "max_tokens": 3, "logprobs": "false", "best_of": "1"}
        assert 200 == (await call(rig, "GET", STREAM, query=query)).status
        refused = await call(rig, "GET", STREAM, query=query | {"logprobs": "true"})
        assert (400, "logprobs") == (refused.status, refused.json["error"]["param"])

    run(test)


def test_a_get_is_the_same_request() -> None:
    """Fields in the URL are those of the body; a list is a field that comes again."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        query = {"prompt": "ab", "preset": "plain", "seed": "1", "stop": ["x", "y"]}
        got = await call(rig, "GET", STREAM, query=query | {"max_tokens": 3})
        posted = await call(rig, "POST", STREAM, PROMPT | {"seed": 1, "stop": ["x", "y"]})
        assert [data for _, data in _frames(posted)] == [data for _, data in _frames(got)]
        runs = [await rig.runs.find(a.headers["x-run-id"], "") for a in (got, posted)]
        assert ((97, 98),) == runs[0].prompts == runs[1].prompts
        assert runs[0].sampling == runs[1].sampling
        twice = await call(rig, "GET", STREAM, query=query | {"seed": ["1", "2"]})
        assert (400, "seed") == (twice.status, twice.json["error"]["param"])

    run(test)


@pytest.mark.parametrize("path", [TEXT, "/"])
def test_plain_text_is_cut_between_characters(path: str) -> None:
    """Every part is whole characters of several bytes, and all of them are the text."""
    text = "é中🙂"
    engine = SteppedEngine(lambda _ids, _seed, index: ord(text[index]), vocab_size=0x110000)

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        options = {"query": PROMPT} if path == "/" else {"body": PROMPT}
        answer = await call(rig, "POST", path, answer=WholeAnswer(), **options)
        assert [text[0], text[1], text[2], ""] == [part.decode() for part in answer.bodies]
        assert "text/plain; charset=utf-8" == answer.headers["content-type"]
        shown = await ok(rig, "GET", f"/v1/runs/{answer.headers['x-run-id']}")
        assert text == shown["choices"][0]["text"]

    run(test, engine=engine)


def test_a_failure_before_the_text_is_an_error() -> None:
    """No empty 200: the engine's fault is 500, a log that cannot be written 503."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(1)
        assert (500, None, "engine_error") == await error(rig, "POST", TEXT, PROMPT)
        for path in (TEXT, STREAM):
            rig.store.failures = [StoreFailed()]
            assert (503, None, "store_failed") == await error(rig, "POST", path, PROMPT)

    run(test, faults=Faults(fail_at_token=0))


def test_a_failure_within_plain_text_cuts_it() -> None:
    """The text so far, and no end: nobody takes it for whole."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        answer = WholeAnswer()
        await call(rig, "POST", TEXT, PROMPT | {"max_tokens": 9}, answer=answer)
        assert (200, "ab", False) == (answer.status, answer.text, answer.is_ended)

    run(test, faults=Faults(fail_at_token=2))


def test_a_failure_within_a_stream_is_told() -> None:
    """The last frame is an error, and there is no `[DONE]`."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        answer = await call(rig, "POST", STREAM, PROMPT | {"max_tokens": 9})
        *_, before, last = [data for _, data in _frames(answer)]
        assert ": failed" == before
        assert "engine_error" == json.loads(last.removeprefix("data: "))["error"]["code"]

    run(test, faults=Faults(fail_at_token=2))


@pytest.mark.parametrize("path", [STREAM, TEXT])
def test_who_leaves_pauses_the_run_and_may_come_back(path: str) -> None:
    """The engine stops; the run goes on from where it was when a reader is there again."""

    async def test(rig: Rig) -> None:
        leave, answer = asyncio.Event(), WholeAnswer()
        body = PROMPT | {"max_tokens": 5}
        asking = asyncio.create_task(call(rig, "POST", path, body, leave=leave, answer=answer))
        rig.engine.allow(2)
        await until(lambda: "b" in answer.text)
        leave.set()
        await asking
        run_id = answer.headers["x-run-id"]
        await until(lambda: rig.runs.is_paused(run_id))
        assert 0 == rig.engine.num_open
        rig.engine.allow(5)
        rest = await call(rig, "GET", f"{STREAM}/{run_id}", query={"starting_after": 2})
        assert [f'data: {{"text":"{letter}"}}' for letter in "cde"] == [
            data for _, data in _frames(rest)
        ][:3]

    run(test, grace_s=60)


def test_who_leaves_before_the_first_text_has_no_name_for_it() -> None:
    """The run of a plain text is cancelled then, unless the request had a name of its own."""

    async def test(rig: Rig) -> None:
        for headers, is_paused in (({}, False), ({"idempotency-key": "k"}, True)):
            leave = asyncio.Event()
            asking = asyncio.create_task(
                call(rig, "POST", TEXT, PROMPT, headers=headers, leave=leave)
            )
            await until(lambda: rig.engine.num_open == 1)
            run_id = rig.engine.request_ids[-1].partition("/")[0]
            leave.set()
            await asking
            await turns()
            assert is_paused == rig.runs.is_paused(run_id)
            await rig.runs.cancel(run_id, "")

    run(test, grace_s=60)


WRONG = [
    ("POST", QUERY, {"query": ""}, "query"),
    ("POST", QUERY, {"prompt": "ab"}, "query"),
    ("POST", QUERY, {"query": "x" * 5000}, "query"),
    ("POST", QUERY, {"query": "\ud800"}, "query"),
    ("POST", STREAM, {"prompt": 5}, "prompt"),
    ("POST", STREAM, {"prompt": "x" * 5000}, "prompt"),
    ("POST", STREAM, PROMPT | {"temperature": -1}, "temperature"),
    ("POST", STREAM, PROMPT | {"truncate": 0}, "truncate"),
    ("POST", STREAM, PROMPT | {"n": 2}, "n"),
    ("POST", STREAM, PROMPT | {"stream": False}, "stream"),
    ("POST", STREAM, PROMPT | {"stream_options": {"include_usage": True}}, "stream_options"),
    ("POST", STREAM, PROMPT | {"preset": "none"}, "preset"),
    ("POST", STREAM, PROMPT | {"preset": "../x"}, "preset"),
    ("POST", STREAM, PROMPT | {"logprobs": 3}, "logprobs"),
    ("POST", TEXT, PROMPT | {"stop": ["a"] * 5}, "stop"),
    ("POST", TEXT, [], None),
    ("POST", "/", PROMPT, None),
    ("GET", STREAM, {"prompt": ""}, "prompt"),
    ("GET", STREAM, {"prompt": "a", "max_tokens": "many"}, "max_tokens"),
    ("GET", STREAM, {"prompt": "a", "stream": "perhaps"}, "stream"),
    ("GET", QUERY, {}, "query"),
]


@pytest.mark.parametrize(("method", "path", "fields", "param"), WRONG)
def test_what_is_wrong_is_named(
    method: str, path: str, fields: dict[str, Any], param: str | None
) -> None:
    """400 and the field as the caller calls it."""

    async def test(rig: Rig) -> None:
        options = {"query": fields} if method == "GET" else {"body": fields}
        answer = await call(rig, method, path, **options)
        shown = answer.json["error"]
        assert (400, param) == (answer.status, shown["param"]), shown
        assert [] == rig.engine.request_ids

    run(test)


def test_a_prompt_is_truncated() -> None:
    """Its last tokens are read."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        fields = PROMPT | {"prompt": "x" * 5000 + "ab", "truncate": 2}
        answer = await call(rig, "POST", TEXT, fields)
        spec = await rig.runs.find(answer.headers["x-run-id"], "")
        assert ((ord("a"), ord("b")),) == spec.prompts

    run(test)


def test_an_unknown_model_is_named() -> None:
    """404 before anything is generated."""

    async def test(rig: Rig) -> None:
        refused = await error(rig, "POST", TEXT, PROMPT | {"model": "gpt-none"})
        assert (404, None, "model_not_found") == refused

    run(test)


def test_runs_of_others_are_not_there() -> None:
    """404, by header and by path; a ticket opens what a page reads, and nothing else."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        ours, theirs = _bearer(KEY), _bearer(OTHER_KEY)
        answer = await call(rig, "POST", STREAM, PROMPT, headers=ours)
        run_id = answer.headers["x-run-id"]
        missing = (404, None, "run_not_found")
        assert missing == await error(rig, "GET", f"{STREAM}/{run_id}", headers=theirs)
        place = theirs | {"last-event-id": f"{run_id}:1"}
        assert missing == await error(rig, "GET", STREAM, headers=place)
        tenant = rig.services.keys.tenant(KEY)
        assert tenant is not None
        ticket = {"ticket": rig.services.keys.ticket(tenant, 60)[0]}
        assert 200 == (await call(rig, "GET", f"{STREAM}/{run_id}", query=ticket)).status
        assert (
            200
            == (
                await call(rig, "GET", QUERY, query=ticket | {"query": "a", "max_tokens": 1})
            ).status
        )
        for path in (STREAM, TEXT, QUERY, "/"):
            assert 401 == (await error(rig, "POST", path, PROMPT, query=ticket))[0]

    run(test, keys=(KEY, OTHER_KEY))


def test_pages_of_other_sites_start_nothing() -> None:
    """A link, an image or a form of another site's page is refused where there are no keys."""

    async def test(rig: Rig) -> None:
        foreign = {"sec-fetch-site": "cross-site"}
        for method, path in (("GET", STREAM), ("GET", QUERY), ("POST", "/")):
            query = {"prompt": "a", "query": "a"}
            refused = await error(rig, method, path, query=query, headers=foreign)
            assert (403, None, "not_allowed") == refused
        assert [] == rig.engine.request_ids

    run(test)


def test_an_eventsource_tries_again_later() -> None:
    """Where others get 503 it gets an empty stream with `retry`."""

    async def test(rig: Rig) -> None:
        rig.admission.close()
        query, accept = {"prompt": "a"}, {"accept": "text/event-stream"}
        refused = (503, None, "shutting_down")
        assert refused == await error(rig, "GET", STREAM, query=query)
        assert refused == await error(rig, "POST", TEXT, PROMPT)
        answer = await call(rig, "GET", STREAM, query=query, headers=accept)
        assert (200, b"retry: 5000\n\n") == (answer.status, answer.bodies[0])

    run(test)


def test_a_repeated_request_generates_once() -> None:
    """The same `Idempotency-Key` gives the same run from its beginning."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        key = {"idempotency-key": "once"}
        first = await call(rig, "POST", TEXT, PROMPT, headers=key)
        again = await call(rig, "POST", TEXT, PROMPT, headers=key)
        assert first.headers["x-run-id"] == again.headers["x-run-id"]
        assert b"abc" == b"".join(first.bodies) == b"".join(again.bodies)
        other = PROMPT | {"max_tokens": 2}
        conflict = (409, None, "idempotency_key_reused")
        assert conflict == await error(rig, "POST", TEXT, other, headers=key)

    run(test)
