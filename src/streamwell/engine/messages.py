"""What the server process and the engine process say to each other.

Each message is a tagged msgspec struct, encoded as msgpack behind a four-byte length (big endian).
Both directions carry at most one message per engine step; nothing is ever unpickled.
"""

from __future__ import annotations

import struct

import msgspec

from streamwell.core.types import EngineInfo, EngineStats, GenerateRequest
from streamwell.engine.sequence import SequenceOutput


class EngineConfig(msgspec.Struct, tag="config", frozen=True, kw_only=True):
    """The first message to a new engine process."""

    #: Local folder with `config.json` and safetensors files.
    model_path: str
    device: str
    dtype: str
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    #: Bytes of KV cache; `None` lets the engine choose.
    kv_cache_bytes: int | None
    block_size: int
    num_threads: int | None
    #: `native`, `torch` or `transformers`; `auto` takes the first of them that can run the model.
    model_impl: str = "auto"
    #: `none`, `int8` or `int4`: what weights are rounded to when they are loaded.
    quantization: str = "none"
    #: Let Transformers run code that comes in the folder.
    trust_remote_code: bool = False
    #: Compile the layers; PyTorch's path only.
    compile: bool = False
    #: How many times as long a step may take for prompts beside streams; 0 is no limit.
    step_stretch: float = 0.0
    enable_prefix_caching: bool = True
    #: Tokens that prompt lookup guesses per step and sequence; 0 is off.
    speculative_ngram: int = 0


class Add(msgspec.Struct, tag="add", frozen=True):
    """Start a request."""

    request: GenerateRequest


class Abort(msgspec.Struct, tag="abort", frozen=True):
    """Forget a request; unknown ids are fine, it may just have ended."""

    request_id: str


class Commands(msgspec.Struct, tag="commands", frozen=True):
    """All commands since the last message."""

    commands: tuple[Add | Abort, ...]


class Loading(msgspec.Struct, tag="loading", frozen=True):
    """Where loading is; `progress` from 0 to 1."""

    stage: str
    progress: float


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The engine takes requests from now on."""

    info: EngineInfo


class LoadFailed(msgspec.Struct, tag="load_failed", frozen=True):
    """The model cannot be loaded; the process ends."""

    error: str


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """The process is not frozen; says nothing of the step that it may be in."""


class StepOutput(msgspec.Struct, tag="step", frozen=True):
    """What one step brought; an empty one says that an idle engine turns."""

    outputs: tuple[SequenceOutput, ...]
    stats: EngineStats


ToEngine = EngineConfig | Commands
ToServer = Loading | Loaded | LoadFailed | Alive | StepOutput

_HEADER = struct.Struct(">I")
HEADER_BYTES = _HEADER.size
_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_to_server: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)


def encode_frame(message: ToEngine | ToServer) -> bytes:
    body = _encoder.encode(message)
    return _HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    length: int = _HEADER.unpack(header)[0]
    return length


def decode_to_engine(body: bytes) -> ToEngine:
    return _to_engine.decode(body)


def decode_to_server(body: bytes) -> ToServer:
    return _to_server.decode(body)
