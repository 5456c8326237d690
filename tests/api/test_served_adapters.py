"""Adapters have names like models, and live by the same rules."""

from __future__ import annotations

import asyncio

import pytest
from rig import Rig, SteppedEngine, post, read, request, run, text_of, turns

from streamwell.core.errors import (
    EngineDied,
    InvalidRequest,
    LoadError,
    ModelNotFound,
    ModelUnloaded,
)
from streamwell.service.models import ModelTable
from streamwell.service.served_adapter import ServedAdapter
from streamwell.service.served_model import ModelFacts, ServedModel

LOAD, UNLOAD = "/v1/models/load", "/v1/models/unload"


def _with_adapter(rig: Rig, *, is_at_start: bool = False) -> ServedAdapter:
    """Put an adapter beside the rig's model."""
    table = rig.services.models
    base = table.find("m")
    assert isinstance(base, ServedModel)
    adapter = ServedAdapter("tone", base, ModelFacts(path="/tone"), is_at_start=is_at_start)
    table._add(adapter)
    return adapter


def test_a_request_for_an_adapter_is_one_for_its_base_with_its_name() -> None:
    """The engine is asked for the adapter; without it, for the model alone."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        await adapter.load()
        rig.engine.allow(100)
        readers = [await rig.runs.start(request(model=name)) for name in ("m", "tone", "m")]
        texts = [text_of(await read(reader)) for reader in readers]
        for reader in readers:
            reader.close()

        assert ["abcde"] * 3 == texts
        assert ["", "tone", ""] == rig.engine.adapters
        assert ("m", True) == (adapter.parent, adapter.is_ready)

    run(test)


def test_a_server_that_ends_takes_nothing_from_its_engine() -> None:
    """It may be other servers' too, whose runs with this adapter go on."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        await adapter.load()
        await adapter.stop()

        assert "tone" in rig.engine._adapters

    run(test)


def test_before_it_is_loaded_it_is_refused() -> None:
    """As a model is."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        answer = await post(rig, "/v1/completions", {"model": "tone", "prompt": "a"})

        assert (503, "model_unloaded") == (answer.status, answer.json["error"]["code"])
        with pytest.raises(ModelUnloaded):
            adapter.require()

    run(test)


def test_the_routes_load_and_unload_it() -> None:
    """Its card names its base; unloaded, the engine has forgotten it, and the base stays."""

    async def test(rig: Rig) -> None:
        _with_adapter(rig)
        loaded = await post(rig, LOAD, {"model": "tone", "base": "m"})
        assert ("ready", "m") == (loaded.json["status"], loaded.json["parent"])
        again = await post(rig, LOAD, {"model": "tone"})
        assert "ready" == again.json["status"]
        unloaded = await post(rig, UNLOAD, {"model": "tone"})

        assert ("unloaded", None) == (unloaded.json["status"], unloaded.json["max_model_len"])
        assert rig.services.models.find("m").is_ready

    run(test)


def test_a_lost_adapter_can_be_loaded_again() -> None:
    """The engine may have lost it in a restart, so every load reaches it."""

    async def test(rig: Rig) -> None:
        _with_adapter(rig)
        added: list[str] = []

        async def note(name: str, _path: str) -> None:
            added.append(name)

        rig.engine.add_adapter = note  # type: ignore[method-assign]
        for _ in range(2):
            assert "ready" == (await post(rig, LOAD, {"model": "tone"})).json["status"]
        assert ["tone"] * 2 == added

    run(test)


BAD_BASES = [
    ({"model": "m", "base": "m"}, 400, "base"),
    ({"model": "tone", "base": "tone"}, 400, "base"),
    ({"model": "tone", "base": "no"}, 404, None),
    ({"model": "tone", "base": ""}, 400, "base"),
]


@pytest.mark.parametrize(("body", "status", "param"), BAD_BASES)
def test_a_base_must_be_a_model(body: dict[str, str], status: int, param: str | None) -> None:
    """Each refusal names the field, and nothing changes."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        answer = await post(rig, LOAD, body)

        assert (status, param) == (answer.status, answer.json["error"]["param"])
        assert ("unloaded", "m") == (adapter.state, adapter.parent)

    run(test)


def test_a_loaded_adapter_keeps_its_base() -> None:
    """Another one may be named when it is unloaded."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        other = ServedModel(("other",), SteppedEngine(), object, {})  # type: ignore[arg-type]
        table = ModelTable([*rig.services.models.models, other])
        await adapter.load()
        with pytest.raises(InvalidRequest, match="loaded with the base 'm'"):
            table.rebase(adapter, "other")
        with pytest.raises(ModelNotFound):
            table.rebase(adapter, "no")
        await adapter.unload()
        table.rebase(adapter, "other")

        assert "other" == adapter.parent

    run(test)


def test_who_asks_for_another_model_is_told_the_names() -> None:
    """Each by its own name; of many the first few."""

    async def test(rig: Rig) -> None:
        models = [
            ServedModel((f"m{number}", "alias"), SteppedEngine(), object, {})  # type: ignore[arg-type]
            for number in range(9)
        ]
        with pytest.raises(ModelNotFound, match=r"'no' is not served here. Served are: m0, m1.$"):
            ModelTable(models[:2]).find("no")
        with pytest.raises(ModelNotFound, match=r"m6, m7, \.\.\.\.$"):
            ModelTable(models).find("no")

    run(test)


def test_while_it_is_used_its_base_stays() -> None:
    """Also while an unload waits: else users would be counted at the wrong model."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        base = adapter.base
        other = ServedModel(("other",), SteppedEngine(), object, {})  # type: ignore[arg-type]
        await adapter.load()
        reader = await rig.runs.start(request(model="tone"))
        unloading = asyncio.create_task(adapter.unload())
        await turns()
        with pytest.raises(InvalidRequest, match="loaded with the base 'm'"):
            adapter.rebase(other)
        rig.engine.allow(100)
        await read(reader)
        reader.close()
        await unloading
        await base.unload()

        assert ["unloaded"] * 2 == [adapter.state, base.state]

    run(test)


def test_an_adapter_waits_for_an_engine_that_restarts() -> None:
    """An engine that dies under its load costs a wait, not the load."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        add, num_calls = rig.engine.add_adapter, 0

        async def die_first(name: str, path: str) -> None:
            nonlocal num_calls
            num_calls += 1
            if num_calls == 1:
                raise EngineDied
            await add(name, path)

        rig.engine.add_adapter = die_first  # type: ignore[method-assign]
        await adapter.load()

        assert (2, True) == (num_calls, adapter.is_ready)

    run(test)


def test_an_unload_waits_for_its_runs_and_so_does_one_of_its_base() -> None:
    """Who uses an adapter uses its base."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        await adapter.load()
        reader = await rig.runs.start(request(model="tone"))
        unloading = [asyncio.create_task(it.unload()) for it in (adapter, adapter.base)]
        await turns()
        assert ["unloading"] * 2 == [adapter.state, adapter.base.state]
        rig.engine.allow(100)
        events = await read(reader)
        reader.close()
        await asyncio.gather(*unloading)

        assert "abcde" == text_of(events)
        assert ["unloaded"] * 2 == [adapter.state, adapter.base.state]

    run(test)


def test_with_its_base_it_goes_and_comes_back() -> None:
    """An idle base takes its adapters with it; a request for one of them brings it back."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        await adapter.load()
        await adapter.base.unload(loads_on_request=True)
        assert ("unloaded", True) == (adapter.state, adapter.comes_back)
        rig.engine.allow(100)
        reader = await rig.runs.start(request(model="tone"))
        text = text_of(await read(reader))
        reader.close()

        assert "abcde" == text
        assert ("ready", "ready") == (adapter.state, adapter.base.state)

    run(test)


def test_an_adapter_that_cannot_be_loaded_says_why() -> None:
    """Its base is served all the same."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig)
        await rig.engine.add_adapter("tone", "/another")
        with pytest.raises(LoadError, match="another adapter"):
            await adapter.load()

        assert "failed" == adapter.state
        assert adapter.base.is_ready
        assert "another adapter" in (adapter.error or "")
        with pytest.raises(LoadError, match="'tone' could not be loaded"):
            adapter.require()

    run(test)


def test_readiness_waits_for_adapters_of_the_start() -> None:
    """Not for others."""

    async def test(rig: Rig) -> None:
        adapter = _with_adapter(rig, is_at_start=True)
        assert (True, False) == (adapter.is_expected, adapter.is_ready)
        await adapter.load()
        assert (True, True) == (adapter.is_expected, adapter.is_ready)

    run(test)
