"""What every `Store` promises about deleting what is old, or too much."""

from __future__ import annotations

import asyncio

import pytest
from stores import Run, Site, a_delta, a_run, adopted, an_end, ids

from streamwell.core.ports import Store
from streamwell.core.types import RunSpec
from streamwell.store.rows import event_bytes, spec_bytes

NEVER = float("-inf")


def end_at(site: Site, store: Store, run: Run, now_s: float, *specs: RunSpec) -> None:
    """Commit runs with an event each, and their ends at this time."""
    site.clock.now_s = now_s
    run(store.commit(specs, [a_delta(spec.run_id, 0) for spec in specs]))
    run(store.commit([], [an_end(spec.run_id, 1) for spec in specs]))


async def delete_old(
    store: Store, ended_s: float, *, unstored_s: float, stored_s: float | None = None
) -> int:
    """Delete what ended before these times; what was stored is like the rest if nothing is said."""
    return await store.delete_old(
        ended_before_s=ended_s,
        unstored_before_s=unstored_s,
        stored_before_s=ended_s if stored_s is None else stored_s,
    )


def present(store: Store, run: Run, run_ids: str) -> str:
    return "".join(id_ for id_ in run_ids if run(store.run(id_)))


def test_runs_that_ended_long_ago_are_deleted(site: Site, store: Store, run: Run) -> None:
    """The time of the end counts, not that of the creation; live runs stay; events go too."""
    end_at(site, store, run, 10.0, a_run("a", 1))
    end_at(site, store, run, 20.0, a_run("b", 1))
    run(store.commit([a_run("c", 1)], [a_delta("c", 0)]))
    assert 1 == run(delete_old(store, 20.0, unstored_s=NEVER))
    assert "bc" == present(store, run, "abc")
    assert [0, 2, 1] == [len(run(store.events(run_id))) for run_id in "abc"]
    assert 0 == run(delete_old(store, 20.0, unstored_s=NEVER))


def test_the_commit_of_the_end_sets_the_time(site: Site, store: Store, run: Run) -> None:
    """An end in the commit that made the run counts as well."""
    site.clock.now_s = 10.5
    run(store.commit([a_run("a", 1)], [an_end("a", 0)]))
    assert 0 == run(delete_old(store, 10.5, unstored_s=NEVER))
    assert 1 == run(delete_old(store, 10.6, unstored_s=NEVER))


def test_unstored_runs_have_a_time_of_their_own(site: Site, store: Store, run: Run) -> None:
    """Only where `terms.store` is false does the second time count."""
    runs = [a_run("a", store=False), a_run("b", store=True), a_run("c")]
    end_at(site, store, run, 10.0, *runs)
    end_at(site, store, run, 20.0, a_run("d", store=False))
    assert 1 == run(delete_old(store, NEVER, unstored_s=15.0))
    assert "bcd" == present(store, run, "abcd")


def test_stored_runs_have_a_time_of_their_own(site: Site, store: Store, run: Run) -> None:
    """Where `terms.store` is true only the third time counts."""
    end_at(site, store, run, 10.0, a_run("a", store=True), a_run("b"))
    assert 1 == run(delete_old(store, 15.0, unstored_s=15.0, stored_s=10.0))
    assert "a" == present(store, run, "ab")
    assert 1 == run(delete_old(store, 15.0, unstored_s=15.0, stored_s=11.0))


def test_a_spec_that_is_replaced_changes_what_is_old(site: Site, store: Store, run: Run) -> None:
    """Whoever takes back that a run be stored has it deleted soon."""
    end_at(site, store, run, 10.0, a_run("a", store=True))
    run(store.update_run(a_run("a", store=False)))
    assert 1 == run(delete_old(store, NEVER, unstored_s=15.0))


def test_runs_that_nobody_drives_get_old(site: Site, store: Store, run: Run) -> None:
    """A run without an end whose server is gone counts as ended when it was created.

    Whatever its terms are, it has the time of others to be gone on with.
    """
    dead = site.store()
    run(dead.open())
    run(dead.commit([a_run("a", 10), a_run("b", 20), a_run("c", 10, store=False)], []))
    run(dead.commit([a_run("d", 20, store=False)], [a_delta("a", 0)]))
    run(store.commit([a_run("e", 10)], []))
    assert 0 == run(delete_old(store, 99.0, unstored_s=99.0))
    run(dead.close())
    assert 2 == run(delete_old(store, 15.0, unstored_s=15.0))
    assert 0 == run(delete_old(store, 15.0, unstored_s=25.0))
    assert "bde" == present(store, run, "abcde")
    assert ["b", "d"] == ids(run(adopted(site)))


def test_adopted_runs_do_not_get_old(site: Site, store: Store, run: Run) -> None:
    """Somebody drives them again."""
    dead = site.store()
    run(dead.open())
    run(dead.commit([a_run("a", 10)], []))
    run(dead.close())
    run(store.adopt(["brooklet"]))
    other = site.store()
    run(other.open())
    assert 0 == run(delete_old(other, 99.0, unstored_s=99.0))
    run(other.close())


def test_many_runs_are_deleted_at_once(site: Site, store: Store, run: Run) -> None:
    """There is no limit on how many runs one call deletes, of whichever sort."""
    run_ids = [f"run-{number}" for number in range(30)]
    end_at(site, store, run, 10.0, *(a_run(id_) for id_ in run_ids))
    dead = site.store()
    run(dead.open())
    run(dead.commit([a_run(f"dead-{id_}") for id_ in run_ids], []))
    run(dead.close())
    assert 60 == run(delete_old(store, 2_000.0, unstored_s=NEVER))
    assert all(run(store.run(run_id)) is None for run_id in run_ids)


def size_of(spec: RunSpec) -> int:
    return spec_bytes(spec) + event_bytes(a_delta("a", 0)) + event_bytes(an_end("a", 1))


@pytest.mark.parametrize(
    ("max_runs", "num_bytes_more", "expected"),
    [(4, 0, "abcdlz"), (3, 0, "bcdlz"), (3, -1, "cdlz"), (2, 5, "cdlz"), (0, 0, "lz")],
)
def test_the_oldest_go_until_the_rest_fits(
    site: Site, store: Store, run: Run, max_runs: int, num_bytes_more: int, expected: str
) -> None:
    """Runs that ended first go first; live ones stay, and count with their spec."""
    end_at(site, store, run, 20.0, a_run("c"), a_run("d"))
    end_at(site, store, run, 10.0, a_run("b"))
    end_at(site, store, run, 5.0, a_run("a"))
    run(store.commit([a_run("l"), a_run("z")], [a_delta("l", 0)]))
    max_bytes = max_runs * size_of(a_run("a")) + 2 * spec_bytes(a_run("l")) + num_bytes_more
    num_deleted = run(store.delete_oldest(max_bytes=max_bytes))
    assert expected == present(store, run, "abcdlz")
    assert 6 - len(expected) == num_deleted


def test_no_more_than_needed_goes_of_many(site: Site, store: Store, run: Run) -> None:
    """Many runs are too much at once; exactly as many go as must."""
    run_ids = [f"run-{number:02}" for number in range(40)]
    end_at(site, store, run, 10.0, *(a_run(id_) for id_ in run_ids))
    num_bytes = 3 * size_of(a_run("run-00"))
    assert 37 == run(store.delete_oldest(max_bytes=num_bytes))
    assert [False] * 37 + [True] * 3 == [run(store.run(id_)) is not None for id_ in run_ids]
    assert 0 == run(store.delete_oldest(max_bytes=num_bytes))


def test_two_servers_delete_no_more_than_one(site: Site, store: Store, run: Run) -> None:
    """Both find that too much is kept, at the same time; together they delete what must go."""
    run_ids = [f"run-{number:03}" for number in range(200)]
    end_at(site, store, run, 10.0, *(a_run(id_) for id_ in run_ids))
    num_bytes = 100 * size_of(a_run("run-000"))
    other = site.store()

    async def delete_together() -> int:
        await other.open()
        return sum(
            await asyncio.gather(
                *(each.delete_oldest(max_bytes=num_bytes) for each in (store, other))
            )
        )

    assert 100 == run(delete_together())
    assert [False] * 100 + [True] * 100 == [run(store.run(id_)) is not None for id_ in run_ids]
    run(other.close())


def test_an_empty_store_has_nothing_to_delete(store: Store, run: Run) -> None:
    """Nothing is deleted where nothing is."""
    assert 0 == run(store.delete_oldest(max_bytes=0))
    assert 0 == run(delete_old(store, 9e9, unstored_s=9e9))
