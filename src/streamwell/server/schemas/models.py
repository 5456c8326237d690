"""Requests about models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamwell.server.schemas.fields import WireModel

MAX_MODEL_NAME_CHARS = 512


class UnloadRequest(WireModel):
    """`POST /v1/models/unload`."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS)]


class LoadRequest(UnloadRequest):
    """`POST /v1/models/load`."""

    #: Answer with events that tell how far it is.
    stream: bool = False
    #: Of an adapter, the model that it adapts; the first one if nothing is said.
    base: Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS)] | None = None
