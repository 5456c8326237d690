"""The one table from errors to HTTP: every refusal is an OpenAI error body."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from streamwell.core.errors import (
    ConversationNotFound,
    EngineError,
    IdempotencyConflict,
    InvalidRequest,
    ItemNotFound,
    LoadError,
    ModelNotFound,
    NotEnoughMemory,
    PreviousResponseNotFound,
    RunNotEnded,
    RunNotFound,
    StoreFailed,
    StreamwellError,
    Unavailable,
)
from streamwell.server.error_body import INVALID, SERVER, error_body

log = structlog.get_logger()

#: Characters of a field's path in an answer.
_LONGEST_PARAM = 200

#: Error class to status, type and code; the first row that matches counts.
_TABLE: tuple[tuple[type[StreamwellError], int, str, str | None], ...] = (
    (PreviousResponseNotFound, 404, INVALID, None),
    (InvalidRequest, 400, INVALID, None),
    (ModelNotFound, 404, INVALID, "model_not_found"),
    (RunNotFound, 404, INVALID, "run_not_found"),
    (ConversationNotFound, 404, INVALID, "conversation_not_found"),
    (ItemNotFound, 404, INVALID, "item_not_found"),
    (RunNotEnded, 409, INVALID, "run_not_ended"),
    (IdempotencyConflict, 409, INVALID, "idempotency_key_reused"),
    (Unavailable, 503, SERVER, None),
    (NotEnoughMemory, 503, SERVER, "not_enough_memory"),
    (LoadError, 503, SERVER, "model_load_failed"),
    (StoreFailed, 503, SERVER, "store_failed"),
    (EngineError, 500, SERVER, "engine_error"),
    (StreamwellError, 500, SERVER, None),
)


#: The same request would end the same way.
_LASTING = (EngineError, IdempotencyConflict, LoadError)
#: What went wrong inside is for the log alone.
INTERNAL_ERROR = error_body("The server had an internal error.", SERVER)


class JSONBytes(Response):
    """A JSON response made by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - whatever orjson can serialise
        return orjson.dumps(content)


def error_response(
    status: int,
    message: str,
    kind: str = INVALID,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONBytes:
    return JSONBytes(error_body(message, kind, param=param, code=code), status, headers=headers)


def describe(error: StreamwellError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    _, status, kind, code = next(row for row in _TABLE if isinstance(error, row[0]))
    param = error.param if isinstance(error, InvalidRequest) else None
    message = str(error)
    if param and param.rpartition(".")[2] not in message:  # some clients show nothing else
        message = f"{param}: {message}"
    if isinstance(error, StoreFailed):  # a database's own words may name hosts, users and paths
        log.warning("a request found the store failing", error=message)
        message = str(StoreFailed())
    return status, error_body(message, kind, param=param, code=getattr(error, "code", None) or code)


def answer_of(error: StreamwellError) -> JSONBytes:
    """The whole answer to a request that ends with this error."""
    headers = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if isinstance(error, _LASTING):  # OpenAI's clients would ask twice again
        headers["x-should-retry"] = "false"
    status, body = describe(error)
    return JSONBytes(body, status, headers=headers)


def describe_invalid(errors: Sequence[Any]) -> dict[str, Any]:
    """The body for errors of pydantic's: the first of them, with the dotted path of its field."""
    first = errors[0]
    message = first["msg"].removeprefix("Value error, ")
    location = [str(part) for part in first["loc"]]
    if location[:1] == ["body"] or (location[:1] == ["query"] and location[1:]):
        del location[0]
    if not location:  # two fields that do not go together, or no object at all
        if first["type"] == "string_unicode":
            message = "the name of a field has half a surrogate pair in it"
        elif first["type"] != "value_error":
            message = "the body must be a JSON object, sent as application/json"
        return error_body(message, INVALID)
    param = f"{'.'.join(location):.{_LONGEST_PARAM}}"  # the names in it may be the client's own
    return error_body(f"{param}: {message}", INVALID, param=param)


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(StreamwellError, _streamwell_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)


async def _streamwell_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, StreamwellError):
        raise error
    return answer_of(error)


async def _validation_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_response(400, f"the body is not valid JSON: {first['ctx']['error']}")
    return JSONBytes(describe_invalid(error.errors()), 400)


async def _http_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {401: "invalid_api_key", 403: "not_allowed", 404: "not_found", 405: "method_not_allowed"}
    return error_response(
        error.status_code,
        (error.status_code == 400 and _why_unreadable(error.__cause__)) or str(error.detail),
        code=code.get(error.status_code),
        headers=error.headers,
    )


def _why_unreadable(cause: BaseException | None) -> str | None:
    """What was wrong with a body, where FastAPI only says that something was."""
    if isinstance(cause, UnicodeDecodeError):
        return "the body is not valid UTF-8; it may not be compressed"
    if isinstance(cause, RecursionError):
        return "the body is nested too deeply"
    if "set_int_max_str_digits" in str(cause):
        return "a number in the body is too long"
    return f"the body cannot be read: {cause}" if isinstance(cause, ValueError) else None


async def _unexpected_error(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.scope["path"], exc_info=error)
    return JSONBytes(INTERNAL_ERROR, 500)
