"""What the server process and the engine process say to each other.

Each message is a tagged msgspec struct, encoded as msgpack behind a four-byte length (big endian).
Both directions carry at most one message per engine step; nothing is ever unpickled.
"""

from __future__ import annotations

import struct

import msgspec

from streamwell.core.engine_state import EngineInfo, EngineStats
from streamwell.core.types import GenerateRequest
from streamwell.engine.sequence import SequenceOutput

#: What the KV cache takes at most of main memory when nothing is said, in bytes.
DEFAULT_KV_CACHE_BYTES = 1 << 30
#: A context longer than this is used only when asked for.
DEFAULT_MAX_MODEL_LEN = 8192
#: Tokens of a step on a CPU, on a GPU, and on a GPU by our kernels: to launch a step there takes as
#: long as to compute some thousand.
BATCHED_TOKENS, BATCHED_TOKENS_GPU, BATCHED_TOKENS_KERNELS = 256, 2048, 8192
#: What `EngineInfo.implementation` says of those.
KERNELS = "torch/triton"


def usual_tokens_per_step(info: EngineInfo) -> int:
    """How many are good where a model runs."""
    if info.implementation == KERNELS:
        return BATCHED_TOKENS_KERNELS
    return BATCHED_TOKENS_GPU if info.device.startswith("cuda") else BATCHED_TOKENS


class AddAdapter(msgspec.Struct, tag="add_adapter", frozen=True):
    """Load a LoRA adapter; answered by `AdapterAdded`."""

    #: Never given twice: cached keys and values of an adapter are known by it.
    number: int
    name: str
    #: Folder as PEFT writes it.
    path: str


class EngineConfig(msgspec.Struct, tag="config", frozen=True, kw_only=True):
    """The first message to a new engine process."""

    #: Local folder with `config.json` and safetensors files.
    model_path: str
    device: str
    dtype: str
    max_model_len: int | None
    max_num_seqs: int
    #: Tokens of one step; `None` is as many as the device is good for.
    max_num_batched_tokens: int | None
    #: Bytes of KV cache; `None` lets the engine choose.
    kv_cache_bytes: int | None
    block_size: int
    num_threads: int | None
    #: `native`, `torch` or `transformers`; `auto` takes the first of them that can run the model.
    model_impl: str = "auto"
    #: `none`, `int8` or `int4`: what weights are rounded to when they are loaded; `auto`: nothing,
    #: but those that are rounded in a GGUF file stay so.
    quantization: str = "none"
    #: Let Transformers run code that comes in the folder.
    trust_remote_code: bool = False
    #: Compile the layers; PyTorch's path only.
    compile: bool = False
    #: Replay decode steps as CUDA graphs; our decoders on a GPU only.
    cuda_graphs: bool = True
    #: How many times as long a step may take for prompts beside streams; 0 is no limit.
    step_stretch: float = 0.0
    #: Seconds that a step may take anyhow if all prompts beside the streams are short; twice as
    #: long if there are several.
    short_step_s: float = 0.0
    enable_prefix_caching: bool = True
    #: Tokens that prompt lookup guesses per step and sequence; 0 is off.
    speculative_ngram: int = 0
    #: Folder of a smaller model that guesses instead, and how many tokens it guesses at most.
    speculative_model: str | None = None
    speculative_tokens: int = 4
    #: Sequences may have LoRA adapters: so many, and none of a higher rank.
    enable_lora: bool = False
    max_loras: int = 8
    max_lora_rank: int = 64
    #: Where to write what each step computes.
    trace_path: str | None = None
    #: Those that an engine before this one had.
    adapters: tuple[AddAdapter, ...] = ()

    def tokens_per_step(self, usual: int) -> int:
        """How many at most; if nothing is said the usual, and no fewer than there are sequences."""
        return self.max_num_batched_tokens or max(usual, self.max_num_seqs)

    @property
    def num_speculative_tokens(self) -> int:
        """Tokens that are guessed per step and sequence, at most, by whatever guesses."""
        return self.speculative_tokens if self.speculative_model else self.speculative_ngram


class Add(msgspec.Struct, tag="add", frozen=True):
    """Start a request."""

    request: GenerateRequest


class Abort(msgspec.Struct, tag="abort", frozen=True):
    """Forget a request; unknown ids are fine, it may just have ended."""

    request_id: str


class RemoveAdapter(msgspec.Struct, tag="remove_adapter", frozen=True):
    """Forget an adapter; its live requests fail. Unknown names are fine."""

    name: str


Command = Add | Abort | AddAdapter | RemoveAdapter


class Commands(msgspec.Struct, tag="commands", frozen=True):
    """All commands since the last message."""

    commands: tuple[Command, ...]


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


class AdapterAdded(msgspec.Struct, tag="adapter_added", frozen=True):
    """An adapter is there, or why not."""

    number: int
    error: str | None = None
    #: Whether that is because its name is another adapter's.
    is_taken: bool = False


class StepOutput(msgspec.Struct, tag="step", frozen=True):
    """What one step brought; an empty one says that an idle engine turns."""

    outputs: tuple[SequenceOutput, ...]
    stats: EngineStats


ToEngine = EngineConfig | Commands
ToServer = Loading | Loaded | LoadFailed | Alive | AdapterAdded | StepOutput

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
