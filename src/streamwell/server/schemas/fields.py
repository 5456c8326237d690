"""Fields and limits that several requests share."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

#: Finite limits on everything a request can make us do; see docs/api.md.
MAX_CHOICES = 8
MAX_PROMPTS = 64
MAX_PARTS = 2048
MAX_PROMPT_IDS = 1 << 20
MAX_MESSAGES = 2048
MAX_STOPS = 4
MAX_STOP_CHARS = 256
MAX_LOGIT_BIASES = 300
MAX_STOP_TOKEN_IDS = 128
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512
#: Printable ASCII, as a regular expression.
IDEMPOTENCY_KEY = r"[\x21-\x7e]{1,255}"
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")


class WireModel(BaseModel):
    """Strict about the fields it knows; keeps the others so that `convert` can look at them."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


def none_as_empty(value: Any) -> Any:  # noqa: ANN401 - a validator takes whatever was sent
    """A list that is not given is an empty one."""
    return [] if value is None else value


def _as_list(value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, str | list | None):
        raise ValueError("must be a string or a list of strings")  # noqa: TRY004 - pydantic's own
    return [value] if isinstance(value, str) else value


def _token_ids_as_ints(value: Any) -> Any:  # noqa: ANN401
    """JSON keys are strings; token ids are not."""
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_LOGIT_BIASES:
        raise ValueError(f"at most {MAX_LOGIT_BIASES} token ids")
    if not all(isinstance(key, str) and _TOKEN_ID.fullmatch(key) for key in value):
        raise ValueError("keys must be token ids")
    return {int(key): bias for key, bias in value.items()}


def _within_bias(value: dict[int, float]) -> dict[int, float]:
    if any(not -100 <= bias <= 100 for bias in value.values()):
        raise ValueError("values must be between -100 and 100")
    return value


StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Stop = Annotated[
    Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None, BeforeValidator(_as_list)
]
LogitBias = Annotated[
    Annotated[dict[int, float], AfterValidator(_within_bias)] | None,
    BeforeValidator(_token_ids_as_ints),
]
TokenCount = Annotated[int, Field(ge=1, le=MAX_INT32)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


def _few_pairs(value: Any) -> Any:  # noqa: ANN401
    """Before all else, for each wrong one of a million pairs would be an error of its own."""
    if isinstance(value, dict) and len(value) > MAX_METADATA_PAIRS:
        raise ValueError(f"at most {MAX_METADATA_PAIRS} pairs")
    return value


Metadata = (
    Annotated[
        dict[
            Annotated[str, Field(max_length=MAX_METADATA_KEY_CHARS)],
            Annotated[str, Field(max_length=MAX_METADATA_VALUE_CHARS)],
        ],
        BeforeValidator(_few_pairs),
    ]
    | None
)


ObjectId = Annotated[str, Field(min_length=1, max_length=128)]


def _as_id(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return value["id"]
    return value


class InConversation(WireModel):
    """Where in a conversation a request goes on."""

    conversation: Annotated[ObjectId | None, BeforeValidator(_as_id)] = None
    #: An item, or `root`; `None`: the last item.
    previous_item_id: ObjectId | None = None


class StreamOptions(WireModel):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class SamplingFields(WireModel):
    """How an answer is sampled, and where it ends: what a request and a preset may both say."""

    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_INT32)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Stop = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None


class GenerationRequest(SamplingFields):
    """What all requests that generate have in common."""

    model: str | None = None
    seed: Annotated[int, Field(ge=-MAX_INT64 - 1, le=MAX_INT64)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    logit_bias: LogitBias = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = None
    stop_token_ids: (
        Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_STOP_TOKEN_IDS)] | None
    ) = None
    priority: Annotated[int, Field(ge=-MAX_INT32 - 1, le=MAX_INT32)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: Metadata = None
    user: Annotated[str, Field(max_length=512)] | None = None

    @property
    def extra_fields(self) -> dict[str, Any]:
        """What was sent and the schema does not have; within `stream_options`, too."""
        extra = dict(self.model_extra or {})
        if self.stream_options is not None and self.stream_options.model_extra:
            extra["stream_options"] = dict(self.stream_options.model_extra)
        return extra
