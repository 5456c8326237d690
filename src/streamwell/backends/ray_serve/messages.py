"""What gateways and engine replicas say to each other: msgspec structs, encoded as msgpack.

Ray moves them as plain bytes.
"""

from __future__ import annotations

import msgspec

from streamwell.core.engine_state import EngineInfo, EngineStats, EngineStatus
from streamwell.core.types import GenerateRequest, TokenDelta


class Ask(msgspec.Struct, frozen=True):
    """Generate a request."""

    request: GenerateRequest
    #: Folder of the request's adapter: a replica that is newer than the adapter loads it first.
    adapter_path: str = ""


class Tokens(msgspec.Struct, tag="tokens", frozen=True):
    """What one step brought to one request."""

    delta: TokenDelta


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The last word of a request that ends with an error."""

    message: str
    #: The whole engine went away, not this sequence alone.
    has_died: bool


class Report(msgspec.Struct, frozen=True):
    """How a replica's engine is; `info` once it is loaded."""

    #: Of the replica's process.
    pid: int
    status: EngineStatus
    stats: EngineStats
    info: EngineInfo | None = None


class AdapterAnswer(msgspec.Struct, frozen=True):
    """An adapter is there, or why not."""

    error: str | None = None
    #: Whether that is because its name is empty, or another adapter's.
    is_taken: bool = False
    #: Whether that is because the engine is not up.
    has_died: bool = False


Answer = Tokens | Failed

encode = msgspec.msgpack.Encoder().encode
decode_ask = msgspec.msgpack.Decoder(Ask).decode
decode_report = msgspec.msgpack.Decoder(Report).decode
decode_adapter_answer = msgspec.msgpack.Decoder(AdapterAnswer).decode
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def decode_answer(body: bytes) -> Answer:
    return _answer.decode(body)
