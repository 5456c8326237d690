"""The body of every error, in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from streamwell.core.types import RunEvent

INVALID = "invalid_request_error"
SERVER = "server_error"


def error_body(
    message: str, kind: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """`param` is the dotted path of a field."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def run_error(end: RunEvent) -> dict[str, Any]:
    """Why a run failed, by its last event."""
    return error_body(end.error or "", SERVER, code=end.error_code)
