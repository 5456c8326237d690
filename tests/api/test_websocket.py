"""`/v1/ws` in one event loop: prompts, runs side by side, resuming, leaving, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from rig import Rig, read, request, run, turns, until
from socket_rig import ENDS, connected, text_of

from streamwell.backends.scripted import Faults
from streamwell.core.types import EventKind, FinishReason
from streamwell.server.chat_socket import MAX_RUNS

pytestmark = pytest.mark.timeout(30)

GRACE_S = 60.0
PROMPT = {"type": "prompt", "prompt": "ab", "raw": True, "seed": 1}


def test_a_prompt_is_answered_to_its_end() -> None:
    """`started`, deltas and `done` come once each, with the numbers of the log's events."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(5)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=5, id="first")
            await client.until_frames(1, "done")

        started, *deltas, done = client.frames
        events = await rig.store.events(started["run"])
        assert ("started", 0, "first") == (started["type"], started["seq"], started["id"])
        assert "abcde" == text_of(deltas)
        assert [e.seq for e in events if e.kind is EventKind.DELTA] == [d["seq"] for d in deltas]
        assert (events[-1].seq, "length") == (done["seq"], done["finish_reason"])
        assert (2, 5) == (done["usage"]["prompt_tokens"], done["usage"]["completion_tokens"])

    run(test)


def test_messages_are_a_conversation() -> None:
    """`messages` in place of `prompt` go through the chat template."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(2)
        async with connected(rig) as client:
            messages = [{"role": "user", "content": "abc"}]
            client.say(type="prompt", messages=messages, max_tokens=2)
            done = (await client.until_frames(1, "done"))[0]

        assert ("ab", 3) == (text_of(client.frames), done["usage"]["prompt_tokens"])

    run(test)


def test_choices_have_their_index_and_their_reason() -> None:
    """One run of two choices: each delta says whose it is, the end has a reason for each."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(6)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=3, n=2)
            done = (await client.until_frames(1, "done"))[0]

        assert 1 == len(await client.until_frames(1, "started"))
        assert ["abc", "abc"] == [text_of(client.frames, index) for index in (0, 1)]
        assert ["length", "length"] == done["finish_reasons"]

    run(test)


def test_a_cut_after_any_event_loses_and_repeats_nothing() -> None:
    """Whatever the last number seen is, a new connection gets exactly the frames after it."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(6)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=6)
            await client.until_frames(1, "done")
        run_id = client.frames[0]["run"]
        last_seq = client.frames[-1]["seq"]

        for seq in range(-1, last_seq):
            async with connected(rig) as other:
                other.say(type="resume", run=run_id, seq=seq)
                await other.until_frames(1, "done")
            assert [frame for frame in client.frames if frame["seq"] > seq] == other.frames

    run(test)


def test_a_run_that_nobody_reads_goes_on_when_it_is_resumed() -> None:
    """The connection breaks: the engine stops; resumed elsewhere, the rest comes exactly once."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=9)
            seen = await client.until_frames(3, "delta")
        run_id, seq = seen[-1]["run"], seen[-1]["seq"]
        await until(lambda: rig.runs.is_paused(run_id))
        assert 0 == rig.engine.num_open

        rig.engine.allow(9)
        async with connected(rig) as other:
            other.say(type="resume", run=run_id, seq=seq)
            await other.until_frames(1, "done")

        frames = client.frames + other.frames
        assert "abcdefghi" == text_of(frames)
        assert sorted({frame["seq"] for frame in frames}) == [frame["seq"] for frame in frames]

    run(test, grace_s=GRACE_S)


def test_a_background_run_does_not_wait_for_readers() -> None:
    """It goes on after its connection is gone, and its text can be had later."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=5, background=True)
            run_id = (await client.until_frames(1, "started"))[0]["run"]
        rig.engine.allow(5)
        await rig.runs.log.wait_for_end(run_id)
        async with connected(rig) as other:
            other.say(type="resume", run=run_id, seq=-1)
            await other.until_frames(1, "done")

        assert "abcde" == text_of(other.frames)

    run(test, grace_s=GRACE_S)


def test_two_runs_share_a_connection() -> None:
    """They are generated side by side, each with its own numbers; `id` tells which is which."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=4, id="one")
            client.say(**PROMPT, max_tokens=6, id="two")
            started = await client.until_frames(2, "started")
            rig.engine.allow(10)
            await client.until_frames(2, "done")

        assert {"one", "two"} == {frame["id"] for frame in started}
        for frame in started:
            frames = client.of(frame["run"])
            assert {"one": "abcd", "two": "abcdef"}[frame["id"]] == text_of(frames)
            assert sorted(f["seq"] for f in frames) == [f["seq"] for f in frames]
        runs = [frame["run"] for frame in client.frames]
        assert runs != sorted(runs)  # side by side, not one after the other

    run(test)


def test_a_run_is_cancelled_for_all_of_its_readers() -> None:
    """Its follower gets `done` with `cancelled`, once; the connection goes on."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(2)
        async with connected(rig) as client, connected(rig) as other:
            client.say(**PROMPT, max_tokens=100)
            run_id = (await client.until_frames(2, "delta"))[0]["run"]
            other.say(type="cancel", run=run_id)
            await other.until_frames(1, "done")
            await client.until_frames(1, "done")
            client.say(type="cancel", run=run_id)
            await client.until_frames(2, "done")
            rig.engine.allow(1)
            client.say(**PROMPT, max_tokens=1)
            await client.until_frames(3, "done")

        assert ["cancelled", "cancelled", "length"] == [
            frame["finish_reason"] for frame in await client.until_frames(3, "done")
        ]
        assert ["cancelled"] == [frame["finish_reason"] for frame in other.frames]

    run(test)


def test_who_cancels_what_it_follows_is_told_once() -> None:
    """By its follower alone."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(2)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=100)
            run_id = (await client.until_frames(2, "delta"))[0]["run"]
            client.say(type="cancel", run=run_id)
            await client.until_frames(1, "done")
            rig.engine.allow(1)
            client.say(**PROMPT, max_tokens=1)

            assert ["cancelled", "length"] == [
                frame["finish_reason"] for frame in await client.until_frames(2, "done")
            ]

    run(test)


TOO_LONG = {"type": "resume", "run": "x" * 81, "seq": 0}
BAD_MESSAGES: list[tuple[Any, str | None]] = [
    ("{", None),
    ("[]", None),
    ("NaN", None),
    ("[" * 100_000, None),
    ({}, "type"),
    ({"type": "sing"}, "type"),
    ({"type": ["prompt"]}, "type"),
    ({"type": "prompt"}, "prompt"),
    (PROMPT | {"messages": [{"role": "user", "content": "a"}]}, "messages"),
    (PROMPT | {"messages": []}, "messages"),
    (PROMPT | {"temperature": -1}, "temperature"),
    (PROMPT | {"max_tokens": "5"}, "max_tokens"),
    (PROMPT | {"idempotency_key": ""}, "idempotency_key"),
    (PROMPT | {"id": 7}, "id"),
    (PROMPT | {"tools": [{}]}, "tools"),
    (PROMPT | {"model": "other"}, None),
    ({"type": "resume", "seq": 0}, "run"),
    (TOO_LONG, "run"),
    ({"type": "resume", "run": "run_a\x00", "seq": 0}, "run"),
    ({"type": "resume", "run": "run_a", "seq": -2}, "seq"),
    ({"type": "resume", "run": "run_a", "seq": 2**63}, "seq"),
    ({"type": "resume", "run": "run_a", "seq": 1.5}, "seq"),
    ({"type": "resume", "run": "run_a", "seq": 1}, None),
    ({"type": "cancel", "run": "run_a"}, None),
    ({"type": "auth"}, "key"),
]


def test_what_is_wrong_is_told_and_changes_nothing() -> None:
    """Each bad message gets one error frame with its field; the connection stays usable."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            for at, (message, param) in enumerate(BAD_MESSAGES):
                if isinstance(message, str):
                    client.say_text(message)
                else:
                    client.say(**message)
                error = (await client.until_frames(at + 1, "error"))[at]["error"]
                assert param == error["param"], message
                assert "invalid_request_error" == error["type"], message
            rig.engine.allow(2)
            client.say(**PROMPT, max_tokens=2)
            await client.until_frames(1, "done")

        assert "ab" == text_of(client.frames)

    run(test)


def test_an_error_carries_the_id_of_its_message() -> None:
    """So that a client with several prompts under way knows which one failed."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, top_p=3, id="seven")
            assert "seven" == (await client.until_frames(1, "error"))[0]["id"]

    run(test)


def test_a_connection_follows_so_many_runs_and_no_more() -> None:
    """The one too many is refused; when a run has ended there is room again."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            for _ in range(MAX_RUNS):
                client.say(**PROMPT, max_tokens=1)
            runs = [frame["run"] for frame in await client.until_frames(MAX_RUNS, "started")]
            client.say(**PROMPT, max_tokens=1)
            await client.until_frames(1, "error")
            client.say(type="resume", run=runs[0], seq=-1)
            assert 2 == len(await client.until_frames(2, "error"))
            rig.engine.allow(1)
            await client.until_frames(1, "done")
            client.say(**PROMPT, max_tokens=1)
            await client.until_frames(MAX_RUNS + 1, "started")
            rig.engine.allow(MAX_RUNS)
            await client.until_frames(MAX_RUNS + 1, "done")

        errors = await client.until_frames(2, "error")
        assert all(f"at most {MAX_RUNS} runs" in frame["error"]["message"] for frame in errors)

    run(test, limit=100)


def test_a_run_is_followed_once_per_connection() -> None:
    """Twice would send every number twice."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=3)
            run_id = (await client.until_frames(1, "started"))[0]["run"]
            client.say(type="resume", run=run_id, seq=-1)
            error = (await client.until_frames(1, "error"))[0]
            rig.engine.allow(3)
            await client.until_frames(1, "done")

        assert "run" == error["error"]["param"]
        assert "abc" == text_of(client.frames)

    run(test)


def test_there_is_nothing_after_the_end() -> None:
    """Resuming after the last event says so; a number that was not given yet is refused."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(1)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=1)
            done = (await client.until_frames(1, "done"))[0]
            for at, seq in enumerate((done["seq"], done["seq"] + 1, 9999)):
                client.say(type="resume", run=done["run"], seq=seq)
                errors = await client.until_frames(at + 1, "error")

        assert ["seq"] * 3 == [frame["error"]["param"] for frame in errors]

    run(test)


def test_the_same_idempotency_key_is_the_same_run() -> None:
    """A prompt that is sent again gets the run of the first one, from its beginning."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        for _ in range(2):
            async with connected(rig) as client:
                client.say(**PROMPT, max_tokens=3, idempotency_key="k")
                done = (await client.until_frames(1, "done"))[0]
                assert "abc" == text_of(client.frames)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=4, idempotency_key="k")
            error = (await client.until_frames(1, "error"))[0]["error"]

        assert "idempotency_key_reused" == error["code"]
        assert 3 == done["usage"]["completion_tokens"] == rig.engine.stats().num_steps

    run(test)


def test_a_client_that_does_not_read_blocks_itself_alone() -> None:
    """Others get their text meanwhile; when it reads again, it gets all of its own."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as slow, connected(rig) as quick:
            slow.reads.clear()
            slow.say(**PROMPT, max_tokens=5)
            quick.say(**PROMPT, max_tokens=7)
            rig.engine.allow(12)
            await quick.until_frames(1, "done")
            await until(lambda: rig.engine.num_open == 0)
            assert [] == slow.frames
            slow.reads.set()
            await slow.until_frames(1, "done")

        assert ("abcde", "abcdefg") == (text_of(slow.frames), text_of(quick.frames))

    run(test)


@pytest.mark.parametrize("num_turns", range(12))
def test_a_client_may_leave_at_any_moment(num_turns: int) -> None:
    """Whatever was under way, the run has no reader left and the engine no work."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=100)
            await turns(num_turns)
        await turns()

        assert 0 == rig.admission.num_live
        assert set() == rig.store.unended

    run(test)


def test_a_failing_engine_ends_the_run_with_an_error() -> None:
    """The error frame has the run and its last number; the connection goes on."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3)
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=9)
            error = (await client.until_frames(1, "error"))[0]
            client.say(type="resume", run=error["run"], seq=-1)
            await client.until_frames(2, "error")

        events = await rig.store.events(error["run"])
        assert (events[-1].seq, "engine_error") == (error["seq"], error["error"]["code"])
        assert client.frames[0]["run"] == error["run"]

    run(test, faults=Faults(fail_at_token=2))


def test_a_full_server_says_when_to_come_back() -> None:
    """What a refused HTTP request reads in `Retry-After` is in the frame."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=1)
            client.say(**PROMPT, max_tokens=1)
            error = (await client.until_frames(1, "error"))[0]
            rig.engine.allow(1)
            await client.until_frames(1, "done")

        assert ("overloaded", 2) == (error["error"]["code"], error["retry_after_s"])

    run(test, limit=1)


def test_a_server_that_shuts_down_suspends_what_can_go_on() -> None:
    """Each run says so, then the connection is closed with 1012; new prompts are refused before."""

    async def test(rig: Rig) -> None:
        rig.store.is_durable = True
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=9, id="a")
            client.say(**PROMPT, max_tokens=9, id="b")
            started = await client.until_frames(2, "started")
            rig.admission.close()
            client.say(**PROMPT, max_tokens=9)
            refused = (await client.until_frames(1, "error"))[0]
            await rig.runs.drain(0)
            assert 1012 == await client.until_closed()

        suspended = [frame for frame in client.frames if frame["type"] == "suspended"]
        assert "shutting_down" == refused["error"]["code"]
        assert {f["run"] for f in started} == {f["run"] for f in suspended}
        assert all(frame["retry_after_s"] > 0 for frame in suspended)
        assert {f["run"] for f in started} == rig.store.unended
        assert 3 == sum(frame["type"] in ENDS for frame in client.frames)

    run(test, grace_s=GRACE_S)


def test_a_log_that_breaks_ends_the_stream_with_an_error() -> None:
    """Nobody is left waiting for frames that cannot come."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=9)
            await client.until_frames(1, "started")
            rig.store.failures.append(OSError("disk full"))
            rig.engine.allow(9)
            error = (await client.until_frames(1, "error"))[0]

        assert "store_failed" == error["error"]["code"]
        assert client.frames[0]["run"] == error["run"]

    run(test)


def test_runs_of_other_routes_can_be_resumed_too() -> None:
    """A run is a run, whatever started it."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(5)
        reader = await rig.runs.start(request())
        events = await read(reader)
        async with connected(rig) as client:
            client.say(type="resume", run=reader.spec.run_id, seq=-1)
            done = (await client.until_frames(1, "done"))[0]
        reader.close()

        assert FinishReason.LENGTH is events[-2].finish_reason
        assert ("abcde", "length") == (text_of(client.frames), done["finish_reason"])

    run(test)
