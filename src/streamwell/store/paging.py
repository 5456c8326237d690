"""Pages of a list, in SQL and in memory: entries are told apart by a key that orders them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, tuple_

from streamwell.core.conversation import Page

T = TypeVar("T")


def select_page(
    statement: Select[Any],
    page: Page,
    key: Sequence[ColumnElement[Any]],
    key_of_after: Sequence[ColumnElement[Any] | str],
) -> Select[Any]:
    """One page of the statement's rows; `key_of_after` is the key of the entry `page.after`."""
    if page.after:
        place, before = tuple_(*key), tuple_(*key_of_after)
        statement = statement.where(place < before if page.newest_first else place > before)
    order = [column.desc() for column in key] if page.newest_first else key
    return statement.order_by(*order).limit(page.limit)


def page_of(entries: Iterable[T], page: Page, key: Callable[[T], Any], after: T | None) -> list[T]:
    """One page of entries; `after` is the entry `page.after`, `None` if there is none."""
    if page.after and after is None:
        return []
    ordered = sorted(entries, key=key, reverse=page.newest_first)
    if after is not None:
        place = key(after)
        ordered = [e for e in ordered if (key(e) < place if page.newest_first else key(e) > place)]
    return ordered[: page.limit]
