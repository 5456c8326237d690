"""Requests in a URL: their fields, and who may start a run by one."""

from __future__ import annotations

from typing import TypeVar

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import HTTPConnection

from streamwell.server.deps import Services
from streamwell.server.schemas.fields import WireModel

#: Fields that are lists of integers, even where they come once.
_INTEGERS = ("stop_token_ids",)
_MAX_DIGITS = 18
#: What a field that the schema does not have may say in JSON, too.
_WORDS = {"true": True, "false": False, "null": None}

Model = TypeVar("Model", bound=WireModel)


def refuse_other_sites(connection: HTTPConnection, services: Services) -> None:
    """Without keys, a page of any site could start runs: its browser says that it is one.

    Raises:
        HTTPException: 403.
    """
    if services.keys.is_open and connection.headers.get("sec-fetch-site") == "cross-site":
        raise HTTPException(403, "pages of other sites need a ticket, and the server an API key")


def from_query(model: type[Model], connection: HTTPConnection) -> Model:
    """The query as a request: what would be numbers and flags in JSON is text in a URL.

    A field that comes more than once is a list.

    Raises:
        RequestValidationError: a field is wrong.
    """
    values: dict[str, list[str]] = {}
    for name, value in connection.query_params.multi_items():
        values.setdefault(name, []).append(value)
    values.pop("ticket", None)
    integers = {name: list(map(_integer, values.pop(name))) for name in _INTEGERS if name in values}
    lists = {name: found for name, found in values.items() if len(found) > 1}
    single = {name: found[0] for name, found in values.items()}
    try:
        request = model.model_validate_strings(single)
        texts = request.model_extra or {}
        extra = {name: _WORDS.get(text, _integer(text)) for name, text in texts.items()}
        # a list is nothing that pydantic reads out of text
        given = request.model_dump(exclude_unset=True) | extra | lists | integers
        return model.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _integer(text: str) -> int | str:
    """What is none stays a text, which is refused."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else text
