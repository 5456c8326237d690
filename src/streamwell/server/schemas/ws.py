"""Messages that a client of `/v1/ws` sends."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from streamwell.server.schemas.fields import IDEMPOTENCY_KEY, WireModel

RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]


class ClientMessage(WireModel):
    """What all messages may have."""

    #: Comes back in the frame that answers this message.
    id: Annotated[str, Field(max_length=64)] | None = None


class PromptMessage(ClientMessage):
    """Starts a run; the fields beside these are those of a `StartRunRequest`."""

    type: Literal["prompt"]
    idempotency_key: Annotated[str, Field(pattern=f"^{IDEMPOTENCY_KEY}$")] | None = None


class ResumeMessage(ClientMessage):
    """Follows a run after the last event that was seen; -1 is the beginning."""

    type: Literal["resume"]
    run: RunId
    seq: Annotated[int, Field(ge=-1, lt=10**10)]


class CancelMessage(ClientMessage):
    """Ends a run, for all of its readers."""

    type: Literal["cancel"]
    run: RunId


class AuthMessage(ClientMessage):
    """The key of a browser, which can send no header."""

    type: Literal["auth"]
    key: Annotated[str, Field(max_length=4096)]
