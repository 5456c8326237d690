"""What every `Store` promises about conversations and their items."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from stores import Run, Site, a_conversation, a_run, an_item

from streamwell.core.conversation import ConversationItem, Page
from streamwell.core.ports import Store
from streamwell.core.types import Message

OLDEST_FIRST = Page(newest_first=False)


def item_ids(items: list[ConversationItem]) -> str:
    return "".join(item.item_id for item in items)


def test_a_conversation_comes_back_as_it_was_created(store: Store, run: Run) -> None:
    """It is found by its id, equal in every field, as are its items; texts may hold U+0000."""
    conversation = replace(a_conversation("c"), metadata=(("a\0", "b"), ("ä", "")))
    items = [
        ConversationItem(item_id="1", message=Message("user", "be\0fore")),
        ConversationItem(item_id="2", run_id="resp-1"),
    ]
    run(store.create_conversation(conversation, items))
    assert conversation == run(store.conversation("c"))
    assert items == run(store.items("c", OLDEST_FIRST))


def test_what_is_not_there_is_no_error(store: Store, run: Run) -> None:
    """Asking for, replacing or deleting what is not there does nothing."""
    run(store.update_conversation(a_conversation("c")))
    assert run(store.conversation("c")) is None
    assert [] == run(store.items("c", Page()))
    assert [] == run(store.conversations("tenant-1", Page()))
    assert not run(store.delete_conversation("c"))
    assert not run(store.delete_item("c", "1"))


def test_conversations_are_counted_by_tenant(store: Store, run: Run) -> None:
    """Deleted ones no longer count."""
    for conversation in (
        a_conversation("a"),
        a_conversation("b"),
        replace(a_conversation("c"), tenant="tenant-2"),
    ):
        run(store.create_conversation(conversation, []))
    run(store.delete_conversation("a"))
    tenants = ("tenant-1", "tenant-2", "tenant-3")
    assert [1, 1, 0] == [run(store.num_conversations(tenant)) for tenant in tenants]


def test_an_id_is_given_once(store: Store, run: Run) -> None:
    """A conversation that is there is not replaced, nor are its items."""
    run(store.create_conversation(a_conversation("c"), [an_item("1")]))
    with pytest.raises(ValueError, match="already"):
        run(store.create_conversation(a_conversation("c", 5), [an_item("2")]))
    assert a_conversation("c") == run(store.conversation("c"))
    assert "1" == item_ids(run(store.items("c", Page())))


def test_items_given_twice_refuse_a_conversation(store: Store, run: Run) -> None:
    """All of it is kept, or nothing."""
    with pytest.raises(ValueError, match="already"):
        run(store.create_conversation(a_conversation("c"), [an_item("1"), an_item("1")]))
    assert run(store.conversation("c")) is None


def test_metadata_can_be_replaced(store: Store, run: Run) -> None:
    """Nothing else changes."""
    run(store.create_conversation(a_conversation("c", 5), [an_item("1")]))
    run(store.update_conversation(replace(a_conversation("c", 5), metadata=())))
    assert replace(a_conversation("c", 5), metadata=()) == run(store.conversation("c"))
    assert "1" == item_ids(run(store.items("c", Page())))


def test_a_deleted_conversation_takes_its_items_but_no_runs(store: Store, run: Run) -> None:
    """Its id may be used again, and starts empty."""
    run(store.commit([a_run("a", conversation_id="c")], []))
    run(store.create_conversation(a_conversation("c"), [an_item("1")]))
    assert [True, False] == [run(store.delete_conversation("c")) for _ in range(2)]
    assert run(store.run("a")) is not None
    run(store.create_conversation(a_conversation("c"), []))
    assert [] == run(store.items("c", Page()))


def test_items_keep_their_order(store: Store, run: Run) -> None:
    """Items are in the order in which they came, whatever their ids; deleted ones leave no gap."""
    run(store.create_conversation(a_conversation("c"), [an_item("5"), an_item("4")]))
    run(store.create_conversation(a_conversation("other"), [an_item("5")]))
    run(store.append_items("c", [an_item("9"), an_item("1")]))
    assert [True, False] == [run(store.delete_item("c", "1")) for _ in range(2)]
    run(store.append_items("c", [an_item("3")]))
    run(store.append_items("c", []))
    assert "5493" == item_ids(run(store.items("c", OLDEST_FIRST)))
    assert "3945" == item_ids(run(store.items("c", Page())))
    assert "5" == item_ids(run(store.items("other", Page())))


def test_a_deleted_item_is_left_out_of_the_way(store: Store, run: Run) -> None:
    """What came after it is replaced with it, in its old place; nothing is, if it is not there."""
    run(store.create_conversation(a_conversation("c"), [an_item("1"), an_item("2"), an_item("3")]))
    third = replace(an_item("3"), previous_id="1")
    assert not run(store.delete_item("c", "9", [replace(third, previous_id="9")]))
    assert not run(store.delete_item("other", "2", [third]))
    assert run(store.delete_item("c", "2", [third, an_item("7")]))
    assert [an_item("1"), third] == run(store.items("c", OLDEST_FIRST))


REFUSED = {
    "there": ("c", "21", "already"),
    "given twice": ("c", "33", "already"),
    "unknown conversation": ("nobody", "3", "unknown"),
}


@pytest.mark.parametrize(("conversation_id", "new", "match"), REFUSED.values(), ids=list(REFUSED))
def test_refused_items_change_nothing(
    store: Store, run: Run, conversation_id: str, new: str, match: str
) -> None:
    """One bad item refuses all that came with it."""
    run(store.create_conversation(a_conversation("c"), [an_item("1")]))
    with pytest.raises(ValueError, match=match):
        run(store.append_items(conversation_id, [an_item(item_id) for item_id in new]))
    assert "1" == item_ids(run(store.items("c", Page())))


def test_items_come_with_a_run(store: Store, run: Run) -> None:
    """They are kept at the end of their conversation, or left out where there is none."""
    run(store.create_conversation(a_conversation("c"), [an_item("1")]))
    new = [("c", [an_item("3"), an_item("2")]), ("nobody", [an_item("4")])]
    run(store.commit([a_run("a")], [], new))
    assert "132" == item_ids(run(store.items("c", OLDEST_FIRST)))
    assert [] == run(store.items("nobody", Page()))


@pytest.mark.parametrize(("run_id", "item_id"), [("a", "1"), ("there", "2")])
def test_a_refused_commit_keeps_neither_run_nor_items(
    store: Store, run: Run, run_id: str, item_id: str
) -> None:
    """An item or a run that is there already refuses both."""
    run(store.commit([a_run("there")], []))
    run(store.create_conversation(a_conversation("c"), [an_item("1")]))
    with pytest.raises(ValueError, match="already"):
        run(store.commit([a_run(run_id)], [], [("c", [an_item(item_id)])]))
    assert run(store.run("a")) is None
    assert "1" == item_ids(run(store.items("c", Page())))


PAGES = {
    "newest first": (Page(), "987"),
    "oldest first": (OLDEST_FIRST, "789"),
    "limit": (Page(limit=2), "98"),
    "after": (Page(after="8"), "7"),
    "after, oldest first": (Page(after="7", newest_first=False, limit=1), "8"),
    "after the last": (Page(after="7"), ""),
    "after an unknown one": (Page(after="0"), ""),
}


@pytest.mark.parametrize(("page", "expected"), PAGES.values(), ids=list(PAGES))
def test_pages(store: Store, run: Run, page: Page, expected: str) -> None:
    """Items are paged in the order of their coming, conversations in that of their age."""
    run(store.create_conversation(a_conversation("c", 0), [an_item(id_) for id_ in "789"]))
    foreign = replace(a_conversation("0", 9), tenant="tenant-2")
    aged = [a_conversation("9", 2), a_conversation("7", 1), a_conversation("8", 2)]
    for conversation in [*aged, foreign]:
        run(store.create_conversation(conversation, []))
    assert expected == item_ids(run(store.items("c", page)))
    run(store.delete_conversation("c"))
    found = run(store.conversations("tenant-1", page))
    assert expected == "".join(conversation.conversation_id for conversation in found)


def test_items_of_two_servers_are_all_kept(site: Site, store: Store, run: Run) -> None:
    """Servers that append at the same time do not overwrite each other; each keeps its order."""
    other = site.store()

    async def append(writer: Store, item_ids: str) -> None:
        for item_id in item_ids:
            await writer.append_items("c", [an_item(item_id)])

    async def append_together() -> None:
        await other.open()
        await store.create_conversation(a_conversation("c"), [])
        await asyncio.gather(append(store, "abcdefgh"), append(other, "ABCDEFGH"))
        await other.close()

    run(append_together())
    kept = item_ids(run(store.items("c", OLDEST_FIRST)))
    assert "abcdefgh" == "".join(filter(str.islower, kept))
    assert "ABCDEFGH" == "".join(filter(str.isupper, kept))
