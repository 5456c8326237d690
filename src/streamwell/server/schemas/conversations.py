"""Requests about what is stored: conversations, their items, and metadata."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, FailFast, Field

from streamwell.server.schemas.fields import Metadata, ObjectId, WireModel, none_as_empty
from streamwell.server.schemas.responses import InputMessage

#: Items that one request may add.
MAX_NEW_ITEMS = 20


class CreateConversationRequest(WireModel):
    """`POST /v1/conversations`."""

    items: Annotated[
        list[InputMessage],
        FailFast(),
        BeforeValidator(none_as_empty),
        Field(default_factory=list, max_length=MAX_NEW_ITEMS),
    ]
    metadata: Metadata = None


class CreateItemsRequest(WireModel):
    """`POST /v1/conversations/{id}/items`."""

    items: Annotated[list[InputMessage], FailFast(), Field(min_length=1, max_length=MAX_NEW_ITEMS)]
    previous_item_id: ObjectId | None = None


class UpdateRequest(WireModel):
    """New metadata of a conversation or of a stored completion, in place of the old."""

    metadata: Metadata
