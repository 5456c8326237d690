"""Two servers on one store that reach each other: whoever is asked for a run can answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from rig import Letters, SteppedEngine, read, request, text_of, turns, until

from streamwell.core.errors import RunElsewhere, RunNotFound
from streamwell.core.types import FinishReason
from streamwell.service.admission import Admission
from streamwell.service.models import ModelTable
from streamwell.service.run_log import RunLog
from streamwell.service.served_model import ServedModel
from streamwell.service.shared_runs import SharedRuns
from streamwell.store.memory import MemoryStore
from streamwell.store.memory_database import MemoryDatabase
from streamwell.telemetry import Metrics

pytestmark = pytest.mark.timeout(30)


class DurableStore(MemoryStore):
    """Outlives its server, as far as the tests go."""

    is_durable = True


@dataclass
class Server:
    """One of the servers; it asks the others as a gateway does."""

    engine: SteppedEngine
    runs: SharedRuns
    servers: list[Server] = field(default_factory=list)

    async def let_go(self, run_id: str) -> bool:
        return any([await server.runs.let_go(run_id) for server in self.servers])

    async def end(self, run_id: str) -> None:
        for server in self.servers:
            await server.runs.end(run_id)


async def _start(database: MemoryDatabase, servers: list[Server], model_name: str = "m") -> Server:
    engine = SteppedEngine()
    model = ServedModel((model_name,), engine, Letters, {})
    log = RunLog(DurableStore(database))
    metrics = Metrics("0", lambda: {"m": engine.stats()})
    runs = SharedRuns(ModelTable([model]), log, Admission(8), metrics, grace_s=60.0)
    server = runs.others = Server(engine, runs, servers)
    await log.open()
    await model.load()
    servers.append(server)
    return server


def run(test: Callable[[Server, Server], Awaitable[None]]) -> None:
    async def main() -> None:
        database, servers = MemoryDatabase(), list[Server]()
        one, two = [await _start(database, servers) for _ in range(2)]
        await test(one, two)
        for server in servers:
            assert 0 == server.engine.num_open
            await server.runs.log.close()

    asyncio.run(main())


def test_a_run_that_nobody_reads_goes_on_where_it_is_asked_for() -> None:
    """It moves with its log: what was said is not said again, and the rest follows."""

    async def test(one: Server, two: Server) -> None:
        reader = await one.runs.start(request(max_tokens=5))
        reading = asyncio.create_task(read(reader))
        one.engine.allow(2)
        await turns()
        reading.cancel()
        reader.close()
        run_id = reader.spec.run_id
        again = await two.runs.attach(run_id, "", 1)
        two.engine.allow(3)
        events = await read(again)
        again.close()
        await turns()

        assert "bcde" == text_of(events)
        assert [2, 3, 4, 5, 6, 7] == [event.seq for event in events]
        await one.runs.attach(run_id, "")  # its end is in the store

    run(test)


def test_a_run_that_is_read_stays_where_it_is() -> None:
    """Its reader is not disturbed; who asks elsewhere is told to come back."""

    async def test(one: Server, two: Server) -> None:
        reader = await one.runs.start(request(max_tokens=3))
        reading = asyncio.create_task(read(reader))
        one.engine.allow(1)
        await turns()
        with pytest.raises(RunElsewhere):
            await two.runs.attach(reader.spec.run_id, "")
        one.engine.allow(2)

        assert "abc" == text_of(await reading)
        reader.close()

    run(test)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_run_that_was_left_behind_can_be_ended(*, is_deleted: bool) -> None:
    """Also by a server that cannot go on with it, for it has no such model."""

    async def test() -> None:
        database, servers = MemoryDatabase(), list[Server]()
        gone = await _start(database, servers)
        one, two = [(await gone.runs.start(request(max_tokens=9))).spec.run_id for _ in range(2)]
        gone.engine.allow(4)
        await turns()
        await gone.runs.drain(0)
        await gone.runs.log.close()
        servers.clear()
        heir = await _start(database, servers, "another")
        await heir.runs.recover()
        if is_deleted:
            await heir.runs.delete(one, "")
            with pytest.raises(RunNotFound):
                await heir.runs.attach(one, "")
        else:
            await heir.runs.cancel(one, "")
            events = await heir.runs.log.events(one)
            assert "ab" == text_of(events)
            assert FinishReason.CANCELLED is events[-2].finish_reason
        with pytest.raises(RunElsewhere):  # it waits for a server with its model
            await heir.runs.attach(two, "")
        await heir.runs.log.close()

    asyncio.run(test())


def test_a_run_can_be_cancelled_from_elsewhere() -> None:
    """While it is read: its reader sees the end at once."""

    async def test(one: Server, two: Server) -> None:
        reader = await one.runs.start(request(max_tokens=30))
        reading = asyncio.create_task(read(reader))
        one.engine.allow(2)
        await until(lambda: one.engine.num_open == 1)
        await turns()
        await two.runs.cancel(reader.spec.run_id, "")
        events = await reading
        reader.close()

        assert "ab" == text_of(events)
        assert FinishReason.CANCELLED is events[-2].finish_reason

    run(test)
