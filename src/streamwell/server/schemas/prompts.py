"""Requests of the routes that take a prompt and a preset, and the presets themselves."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from streamwell.server.schemas.fields import (
    GenerationRequest,
    SamplingFields,
    StreamOptions,
    TokenCount,
)
from streamwell.server.schemas.ws import RunId

#: Where a preset's template has the prompt.
PLACE = "{prompt}"
MAX_TEMPLATE_CHARS = 1 << 16
#: What a preset may be called, and its file is, but for the ending.
PRESET_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_Text = Annotated[str, Field(min_length=1)]


class Preset(SamplingFields):
    """A preset's file: what stands around a prompt, and how its answer is sampled."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    description: Annotated[str, Field(max_length=1000)] = ""
    #: Text with one place for the prompt; `None`: the prompt is a user's message.
    template: Annotated[str, Field(max_length=MAX_TEMPLATE_CHARS)] | None = None

    @field_validator("template")
    @classmethod
    def _has_one_place(cls, template: str | None) -> str | None:
        if template is not None and template.count(PLACE) != 1:
            raise ValueError(f"must have {PLACE} in it exactly once")
        return template


class PresetRequest(GenerationRequest):
    """A request for one streamed answer, in the manner of a preset."""

    #: The field that the prompt is in, for errors.
    PROMPT_FIELD: ClassVar[str] = "prompt"

    #: `None`: that of `--prompt-preset`.
    preset: Annotated[str, Field(pattern=f"^{PRESET_NAME}$")] | None = None
    truncate: TokenCount | None = None

    @field_validator("n")
    @classmethod
    def _is_one(cls, n: int | None) -> int | None:
        if n not in (None, 1):
            raise ValueError("must be 1: this route gives one answer")
        return n

    @field_validator("stream")
    @classmethod
    def _is_streamed(cls, stream: bool | None) -> bool | None:  # noqa: FBT001 - a field
        if stream is False:
            raise ValueError("must be true: this route streams")
        return stream

    @field_validator("stream_options")
    @classmethod
    def _has_no_usage(cls, options: StreamOptions | None) -> StreamOptions | None:
        if options is not None and options.include_usage:
            raise ValueError("include_usage is not supported by this route")
        return options


class PromptRequest(PresetRequest):
    """`POST /generate-stream`, `POST /generate`, and the queries of their likes."""

    prompt: _Text


class QueryRequest(PresetRequest):
    """`/query-stream/`."""

    PROMPT_FIELD: ClassVar[str] = "query"

    query: _Text

    @property
    def prompt(self) -> str:
        return self.query


class ChatbotRequest(PresetRequest):
    """The query of the WebSocket `/`: what holds for all prompts of the connection."""

    #: The answer to go on with, and how many text frames of it were received.
    run: RunId | None = None
    after: Annotated[int, Field(ge=0, lt=10**10)] = 0
    #: Each answer begins with a frame that names its run.
    ids: bool = False

    @field_validator("after")
    @classmethod
    def _is_of_a_run(cls, after: int, info: ValidationInfo) -> int:
        if after and info.data.get("run") is None:
            raise ValueError("is for a run that is gone on with: it wants `run`")
        return after
