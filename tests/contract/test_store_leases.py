"""What every `Store` promises about leases: a run has one driver, and none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from stores import Run, Site, a_delta, a_run, adopted, an_end, ids

from streamwell.core.errors import LeaseLost
from streamwell.core.ports import Store


@pytest.fixture
def other(site: Site, run: Run) -> Iterator[Store]:
    """A second open store on the same database, as of another server; closed after the test."""
    other = site.store()
    run(other.open())
    yield other
    run(other.close())


def test_runs_of_a_closed_store_are_adopted(store: Store, other: Store, run: Run) -> None:
    """Runs without an end pass to whoever asks for them, oldest first, those of a second by id."""
    run(store.commit([a_run("c", 2), a_run("b", 1), a_run("a", 2), a_run("ended", 0)], []))
    run(store.commit([], [a_delta("b", 0), an_end("ended", 0)]))
    run(store.close())
    assert [a_run("b", 1), a_run("a", 2), a_run("c", 2)] == run(other.adopt(["brooklet"]))
    run(other.commit([], [a_delta("b", 1)]))
    assert [a_delta("b", 0), a_delta("b", 1)] == run(other.events("b"))


def test_only_runs_of_the_named_models_are_adopted(store: Store, other: Store, run: Run) -> None:
    """A server takes what it can go on with; the rest waits for another."""
    run(store.commit([a_run("a"), a_run("b", model="river"), a_run("c", model="lake")], []))
    run(store.close())
    assert ["a", "c"] == ids(run(other.adopt(["brooklet", "lake"])))
    assert ["b"] == ids(run(other.adopt({"river"})))
    assert [] == run(other.adopt([]))


def test_a_named_run_is_adopted_whatever_its_model(store: Store, other: Store, run: Run) -> None:
    """It alone, if its store is closed: the others wait for who has their models."""
    run(store.commit([a_run("a", model="river"), a_run("b", model="river")], []))
    assert [] == run(other.adopt([], "b"))
    run(store.close())
    assert ["b"] == ids(run(other.adopt(["brooklet"], "b")))
    assert ["a"] == ids(run(other.adopt(["river"], "nobody")))


def test_a_living_store_keeps_its_runs(store: Store, other: Store, run: Run) -> None:
    """Nobody adopts from a store that is open, however often it asks; nor do its own runs pass."""
    run(store.commit([a_run("a")], []))
    assert [[], [], []] == [run(each.adopt(["brooklet"])) for each in (other, store, other)]
    run(store.commit([], [a_delta("a", 0), an_end("a", 1)]))


def test_to_write_on_trial_changes_nothing(store: Store, other: Store, run: Run) -> None:
    """Whoever tries keeps its lease and its runs, and so does everybody else."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))
    for each in (store, other):
        run(each.check_writable())
    assert [] == run(other.adopt(["brooklet"]))
    run(store.commit([], [an_end("a", 1)]))
    assert [a_delta("a", 0), an_end("a", 1)] == run(store.events("a"))


def test_a_store_without_proof_of_life_loses_its_runs(
    site: Site, store: Store, other: Store, run: Run
) -> None:
    """As if its process had died: its runs are adopted, and it can write no more, nor adopt."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))
    site.bereave(store)
    assert ["a"] == ids(run(other.adopt(["brooklet"])))
    for _ in range(2):
        with pytest.raises(LeaseLost):
            run(store.commit([a_run("new")], [a_delta("a", 1)]))
    assert run(other.run("new")) is None
    with pytest.raises(LeaseLost):
        run(store.adopt(["brooklet"]))
    with pytest.raises(LeaseLost):
        run(store.check_writable())
    run(other.commit([], [a_delta("a", 1), an_end("a", 2)]))
    assert 3 == len(run(other.events("a")))


def test_a_lost_lease_comes_before_a_refusal(
    site: Site, store: Store, other: Store, run: Run
) -> None:
    """A former holder hears of its loss even if its events are there already by another's hand."""
    run(store.commit([a_run("a")], []))
    site.bereave(store)
    run(other.adopt(["brooklet"]))
    run(other.commit([], [a_delta("a", 0)]))
    with pytest.raises(LeaseLost):
        run(store.commit([], [a_delta("a", 0)]))


def test_a_store_that_opens_again_has_a_new_lease(
    site: Site, store: Store, other: Store, run: Run
) -> None:
    """After a loss, closing and opening lets it write again; what is left of its runs it adopts."""
    run(store.commit([a_run("a"), a_run("b", model="river")], []))
    site.bereave(store)
    run(other.adopt(["brooklet"]))
    run(store.close())
    run(store.open())
    run(store.commit([a_run("c")], []))
    assert ["b"] == ids(run(store.adopt(["brooklet", "river"])))


def test_a_reopened_store_adopts_its_own_runs(store: Store, run: Run) -> None:
    """A server that stopped and starts again finds what it left behind."""
    run(store.commit([a_run("a")], []))
    run(store.close())
    run(store.open())
    assert ["a"] == ids(run(store.adopt(["brooklet"])))
    assert [] == run(store.adopt(["brooklet"]))


def test_adopted_runs_pass_on(site: Site, store: Store, run: Run) -> None:
    """A run may be adopted any number of times, until it ends."""
    run(store.commit([a_run("a"), a_run("b")], []))
    run(store.close())
    assert [["a", "b"]] * 3 == [ids(run(adopted(site))) for _ in range(3)]
    run(store.open())
    run(store.adopt(["brooklet"]))
    run(store.commit([], [an_end("a", 0)]))
    run(store.close())
    assert ["b"] == ids(run(adopted(site)))


def test_two_heirs_share_nothing(store: Store, other: Store, site: Site, run: Run) -> None:
    """Of stores that adopt at the same time, one gets a run, and the others do not."""
    run(store.commit([a_run(f"run-{number}") for number in range(20)], []))
    run(store.close())
    third = site.store()

    async def adopt_together() -> list[list[str]]:
        await third.open()
        heirs = (other, third) * 4
        return [
            ids(specs) for specs in await asyncio.gather(*(h.adopt(["brooklet"]) for h in heirs))
        ]

    shares = run(adopt_together())
    run(third.close())
    assert 20 == sum(map(len, shares)) == len({id_ for share in shares for id_ in share})


def test_two_stores_write_side_by_side(store: Store, other: Store, run: Run) -> None:
    """Commits of two servers on one database do not hinder each other, and all are kept."""

    async def write(writer: Store, run_id: str) -> None:
        await writer.commit([a_run(run_id)], [])
        for seq in range(20):
            await writer.commit([], [a_delta(run_id, seq)])

    async def write_both() -> None:
        await asyncio.gather(write(store, "a"), write(other, "b"))

    run(write_both())
    for reader, run_id in ((store, "b"), (other, "a")):
        assert [a_delta(run_id, seq) for seq in range(20)] == run(reader.events(run_id))


def test_adopted_specs_are_the_latest(store: Store, other: Store, run: Run) -> None:
    """A spec that was replaced is adopted as it was replaced."""
    run(store.commit([a_run("a")], []))
    spec = replace(a_run("a"), priority=7)
    run(store.update_run(spec))
    run(store.close())
    assert [spec] == run(other.adopt(["brooklet"]))


def test_servers_may_start_and_stop_together(site: Site, run: Run) -> None:
    """Servers that meet over a database that is new, or that others are closing, all get in."""

    async def serve(number: int) -> None:
        store = site.store()
        for round_ in range(5):
            await store.open()
            await store.commit([a_run(f"run-{number}-{round_}")], [])
            await store.close()

    async def serve_together() -> None:
        await asyncio.gather(*(serve(number) for number in range(4)))

    run(serve_together())
    assert 20 == len(run(adopted(site)))


def test_a_run_that_is_let_go_passes_to_who_asks_first(
    store: Store, other: Store, run: Run
) -> None:
    """A living store may give up one run of its own, with its events; it keeps the others."""
    run(store.commit([a_run("a"), a_run("b")], [a_delta("a", 0)]))
    run(other.release("a"))  # not its own
    run(other.release("unknown"))
    assert [] == run(other.adopt(["brooklet"]))
    run(store.release("a"))
    assert ["a"] == ids(run(other.adopt(["brooklet"])))
    assert [] == run(store.adopt(["brooklet"]))
    run(other.commit([], [a_delta("a", 1), an_end("a", 2)]))
    run(store.commit([], [a_delta("b", 0), an_end("b", 1)]))
    assert [a_delta("a", 0), a_delta("a", 1), an_end("a", 2)] == run(store.events("a"))
