"""`GET /v1/runs`: what this server has in hand; `GET /v1/models?fits=true`."""

from __future__ import annotations

import asyncio

import pytest
from http_rig import call, error, ok
from rig import Rig, read, request, run, text_of, until

from streamwell.core.errors import NotEnoughMemory
from streamwell.service.served_model import ServedModel

pytestmark = pytest.mark.timeout(30)


def test_live_runs_are_listed_with_their_state() -> None:
    """The newest first, in progress or paused, with the text so far; who has ended is gone."""

    async def test(rig: Rig) -> None:
        first, second = [await rig.runs.start(request()) for _ in range(2)]
        ids = [first.spec.run_id, second.spec.run_id]
        first.close()
        await until(lambda: rig.runs.is_paused(ids[0]))

        listed = await ok(rig, "GET", "/v1/runs")
        assert ids[::-1] == [entry["id"] for entry in listed["data"]]
        assert ["in_progress", "paused"] == [entry["status"] for entry in listed["data"]]
        assert not listed["has_more"]

        await ok(rig, "POST", f"/v1/runs/{ids[0]}/cancel")
        listed = await ok(rig, "GET", "/v1/runs")
        assert ids[1:] == [entry["id"] for entry in listed["data"]]
        second.close()
        await rig.runs.cancel(ids[1], "")

    run(test, grace_s=1000.0)


def test_who_looks_at_a_run_and_leaves_does_not_cancel_it() -> None:
    """`GET` names it by its id: it waits for whoever streams it to come back."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request())
        run_id = reader.spec.run_id
        reader.close()
        await until(lambda: rig.runs.is_paused(run_id))
        leave = asyncio.Event()
        looking = asyncio.create_task(call(rig, "GET", f"/v1/completions/{run_id}", leave=leave))
        await until(lambda: not rig.runs.is_paused(run_id))
        leave.set()
        await looking

        await until(lambda: rig.runs.is_paused(run_id))
        rig.engine.allow(100)
        again = await rig.runs.attach(run_id, "")
        assert "abcde" == text_of(await read(again))
        again.close()

    run(test, grace_s=60.0)


def test_the_list_of_live_runs_has_pages() -> None:
    """`limit`, `after` and `order`, as lists have them; an unknown `after` is refused."""

    async def test(rig: Rig) -> None:
        readers = [await rig.runs.start(request()) for _ in range(3)]
        ids = [reader.spec.run_id for reader in readers]

        page = await ok(rig, "GET", "/v1/runs", query={"limit": 2, "order": "asc"})
        assert (ids[:2], True) == ([entry["id"] for entry in page["data"]], page["has_more"])
        page = await ok(rig, "GET", "/v1/runs", query={"after": ids[1], "order": "asc"})
        assert (ids[2:], False) == ([entry["id"] for entry in page["data"]], page["has_more"])
        assert (400, "after", None) == await error(rig, "GET", "/v1/runs", query={"after": "x"})
        for reader in readers:
            reader.close()

    run(test)


def test_runs_of_other_tenants_are_not_listed() -> None:
    """Who asks sees his own."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request())

        assert [reader.spec] == rig.runs.live("")
        assert [] == rig.runs.live("somebody else")
        reader.close()

    run(test)


def test_what_could_be_loaded_is_listed_with_whether_it_fits() -> None:
    """Told on request only, and of what is not loaded; a look at memory loads nothing."""

    def obstacle() -> None:
        raise NotEnoughMemory("3 MiB are free")

    async def test(rig: Rig) -> None:
        loaded = rig.services.models.models[0]
        assert isinstance(loaded, ServedModel)

        def unloaded(name: str, **options: object) -> ServedModel:
            return ServedModel(
                (name,), loaded.engine, loaded._load_encoder, {}, is_at_start=False, **options
            )  # type: ignore[arg-type]

        for model in (unloaded("large", check_memory=obstacle), unloaded("small")):
            rig.services.models._add(model)
        cards = (await ok(rig, "GET", "/v1/models", query={"fits": "true"}))["data"]

        assert {loaded.names[0]: None, "large": False, "small": True} == {
            card["id"]: card["fits"]
            for card in cards
            if card["id"] in ("large", "small", loaded.names[0])
        }
        assert "fits" not in (await ok(rig, "GET", "/v1/models"))["data"][0]

    run(test)
