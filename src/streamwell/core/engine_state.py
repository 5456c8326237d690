"""What an engine says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EngineState(StrEnum):
    """Where an engine is in its life."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What `/ready` shows of an engine; `progress` runs from 0 to 1 while loading."""

    state: EngineState
    stage: str = ""
    progress: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What a loaded engine is."""

    #: Tokens of a prompt and its answer; of an encoder-decoder, of the answer with `start_ids`.
    max_model_len: int
    vocab_size: int
    num_blocks: int
    block_size: int
    dtype: str
    device: str
    #: What runs the model, e.g. `native/avx2`; its rounding; what its operator should know.
    implementation: str = ""
    quantization: str = "none"
    warnings: tuple[str, ...] = ()
    #: What the answers of an encoder-decoder begin with, unseen; empty for decoders.
    start_ids: tuple[int, ...] = ()
    #: The most tokens that its encoder reads; `None` for decoders.
    max_input_len: int | None = None
    #: The highest temperature that it samples at; `None`: any.
    max_temperature: float | None = None

    @property
    def is_encoder_decoder(self) -> bool:
        """A prompt is read by an encoder: it takes no room from the answer."""
        return self.max_input_len is not None

    @property
    def max_prompt_len(self) -> int:
        """The most tokens of a prompt that leave room for an answer."""
        return self.max_model_len - 1 if self.max_input_len is None else self.max_input_len

    def max_new_tokens(self, num_prompt_tokens: int) -> int:
        """The most tokens that can answer a prompt of this length."""
        num_taken = len(self.start_ids) if self.is_encoder_decoder else num_prompt_tokens
        return self.max_model_len - num_taken


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Gauges and counters of an engine, as of its last step."""

    num_running: int = 0
    num_waiting: int = 0
    num_used_blocks: int = 0
    num_blocks: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    #: Prompt tokens that were looked for in the prefix cache, and those that were there.
    num_prefix_queried_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    #: Tokens that were guessed, and the guesses that were right.
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
