"""The query of every list: how many, after which, in which order, and with what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query, Request

from streamwell.core.conversation import Page
from streamwell.core.errors import InvalidRequest

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


def refuse_include(request: Request) -> None:
    """Raises `InvalidRequest` for what entries are to hold beside what they always do."""
    names = [name for name in request.query_params if name.partition("[")[0] == "include"]
    if any(request.query_params[name] for name in names):
        raise InvalidRequest("include is not supported yet", "include")


#: The order is the one that OpenAI's list of the same name has by default.
NewestFirstDep = Annotated[ListQuery, Depends(_newest_first)]
OldestFirstDep = Annotated[ListQuery, Depends(_oldest_first)]
