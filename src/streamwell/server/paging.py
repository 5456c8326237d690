"""The query of every list: how many, after which, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query

from streamwell.core.conversation import Page

MAX_LIMIT = 100


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What the caller asked for."""

    limit: int
    after: str
    newest_first: bool

    @property
    def page(self) -> Page:
        """One entry more than asked for: it tells whether there are more."""
        return Page(limit=self.limit + 1, after=self.after, newest_first=self.newest_first)


_Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
_After = Annotated[str, Query(max_length=128, pattern="^[A-Za-z0-9_-]*$")]
_Order = Annotated[Literal["asc", "desc"], Query()]


def _newest_first(limit: _Limit = 20, after: _After = "", order: _Order = "desc") -> ListQuery:
    return ListQuery(limit, after, order == "desc")


def _oldest_first(limit: _Limit = 20, after: _After = "", order: _Order = "asc") -> ListQuery:
    return ListQuery(limit, after, order == "desc")


#: The order is the one that OpenAI's list of the same name has by default.
NewestFirstDep = Annotated[ListQuery, Depends(_newest_first)]
OldestFirstDep = Annotated[ListQuery, Depends(_oldest_first)]
