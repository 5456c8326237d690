"""Requests of Streamwell's own routes."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from streamwell.core.errors import InvalidRequest
from streamwell.server.schemas.fields import (
    MAX_MESSAGES,
    GenerationRequest,
    TokenCount,
    WireModel,
)
from streamwell.server.schemas.openai import ChatMessage

#: How long a ticket opens streams, and at most.
TICKET_S, MAX_TICKET_S = 600, 3600


class StartRunRequest(GenerationRequest):
    """`POST /v1/runs`, and the query of `GET /v1/stream`."""

    prompt: str | None = None
    #: The prompt is continued as it is, without the model's chat template.
    raw: bool = False
    truncate: TokenCount | None = None
    messages: (
        Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
        | None
    ) = None

    @model_validator(mode="after")
    def _has_one_prompt(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            field = "prompt" if self.prompt is None else "messages"
            raise InvalidRequest("give either a prompt or messages", field)
        if self.raw and self.prompt is None:
            raise InvalidRequest("raw goes with a prompt", "raw")
        return self

    def as_message(self) -> ChatMessage:
        """The prompt as a user's message."""
        return ChatMessage.model_validate({"role": "user", "content": self.prompt})


class TicketRequest(WireModel):
    """`POST /v1/tickets`."""

    lifetime_s: Annotated[int, Field(ge=1, le=MAX_TICKET_S)] = TICKET_S
