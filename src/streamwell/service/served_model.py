"""One model that is served: its engine and its tokenizer."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from streamwell.core.engine_state import EngineInfo, EngineState
from streamwell.core.errors import (
    EngineUnavailable,
    LoadError,
    ModelLoading,
    ModelUnloaded,
    NotEnoughMemory,
)
from streamwell.core.messages import ChatOptions, Message, PartKind
from streamwell.core.ports import Engine
from streamwell.service.gathering import Gathering
from streamwell.service.lifecycle import Loadable, Phase
from streamwell.text.response_parser import ResponseParser

log = structlog.get_logger()

#: How long an engine may take to say what is wrong with a folder whose tokenizer cannot be loaded.
_LAST_WORDS_S = 5.0


class Encoder(Protocol):
    """Words to ids and back; the encoding half blocks and is called in worker threads."""

    #: One more than the largest id that it knows.
    vocab_size: int

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` works; asked where something else will do."""
        ...

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]: ...

    def encode_text(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def answer_parser(
        self, prompt_ids: Sequence[int], kinds: Sequence[PartKind]
    ) -> ResponseParser | None:
        """What splits an answer into parts; `None` if it is shown as it is."""
        ...

    def close(self) -> None:
        """Give back what encoding needs; blocks. Decoding goes on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model without loading it."""

    path: str = ""
    #: `model_type` of its config.
    family: str = ""
    #: Bytes of its weights on disk.
    size_bytes: int = 0
    #: Tokens that it was trained for.
    context_length: int | None = None


class ServedModel(Loadable):
    """One model: known by its names from the start, usable when it is loaded."""

    #: Of the requests for it: none.
    adapter = ""
    parent: str | None = None

    def __init__(
        self,
        names: tuple[str, ...],
        engine: Engine,
        load_encoder: Callable[[], Encoder],
        default_sampling: Mapping[str, float],
        *,
        facts: ModelFacts | None = None,
        is_at_start: bool = True,
        turn: asyncio.Lock | None = None,
        check_memory: Callable[[], None] = lambda: None,
        gathering: Gathering | None = None,
    ) -> None:
        """Nothing is loaded yet.

        Args:
            names: what requests call it; the first is its own.
            engine: runs it.
            load_encoder: its tokenizer; blocks.
            default_sampling: what the model's authors recommend where a request is silent.
            facts: what is shown of it.
            is_at_start: it is loaded when the server starts; else it counts as unloaded.
            turn: shared by models that are loaded one after the other.
            check_memory: raises `NotEnoughMemory` if the model does not fit beside what runs now;
                blocks.
            gathering: who lets its choices begin together; default: each begins at once.
        """
        phase = Phase.LOADED if is_at_start else Phase.UNLOADED
        super().__init__(names[0], phase, turn or asyncio.Lock())
        self.names = names
        self.engine = engine
        self.created_s = int(time.time())
        self.default_sampling = default_sampling
        self.facts = facts or ModelFacts()
        self.info: EngineInfo | None = None
        self.is_at_start = is_at_start
        self.gathering = gathering or Gathering()
        self._load_encoder = load_encoder
        self._check_memory = check_memory
        self._encoder: Encoder | None = None

    @property
    def is_ready(self) -> bool:
        return self.info is not None and self.engine.status().state is EngineState.READY

    @property
    def is_expected(self) -> bool:
        """The server is not ready without it."""
        is_loaded = self.phase is Phase.LOADED or self.error is not None
        return self.is_at_start and is_loaded

    def fits(self) -> bool:
        """Whether there is memory to load it; blocks."""
        try:
            self._check_memory()
        except NotEnoughMemory:
            return False
        return True

    def require(self) -> tuple[Encoder, EngineInfo]:
        """What a request needs, now.

        Raises:
            ModelUnloaded: it is not wanted here.
            ModelLoading: not yet.
            EngineUnavailable: the engine is restarting.
            LoadError: it could not be loaded, and will not be.
        """
        self._check_loadable()
        if self.phase is not Phase.LOADED:
            raise ModelUnloaded(self._name)
        status = self.engine.status()
        self._check_loadable(status.error)
        if self._encoder is None or self.info is None:
            raise ModelLoading
        if status.state is not EngineState.READY:
            raise EngineUnavailable
        return self._encoder, self.info

    async def wait_until_up(self) -> tuple[Encoder, EngineInfo]:
        """What a run needs, once it is there: after loading, or a restart of the engine.

        Raises:
            LoadError: the model cannot be loaded.
            EngineDied: the engine was stopped.
        """
        if self.phase is not Phase.LOADED and self.loads_on_request:
            self.load()
        await self._tried.wait()
        if self._encoder is None:
            raise LoadError(self.error)
        return self._encoder, await self.engine.ready()

    @property
    def _is_up(self) -> bool:
        return self.info is not None and self.engine.status().state is not EngineState.FAILED

    @property
    def _up_state(self) -> str:
        state = self.engine.status().state
        if state is EngineState.READY and self.info is None:
            return EngineState.LOADING  # its tokenizer
        return state

    async def _set_up(self) -> None:
        """Start the engine and load the tokenizer meanwhile."""
        await asyncio.to_thread(self._check_memory)
        self.engine.start()
        encoder = asyncio.create_task(asyncio.to_thread(self._load_encoder))
        ready = asyncio.create_task(self.engine.ready())
        try:
            await asyncio.wait((ready, encoder), return_when=asyncio.FIRST_EXCEPTION)
            # what the engine says of a bad folder is clearer, and said before it reads the weights
            await asyncio.wait((ready,), timeout=_LAST_WORDS_S)
            if not ready.done():
                await encoder  # has failed
            info = await ready
            self._encoder, self.info = await encoder, info
        finally:
            ready.cancel()
            await asyncio.wait((ready, encoder))
            encoder.exception()  # it may be that the engine failed too, and says why
        if self._encoder.vocab_size > info.vocab_size:
            log.warning(
                "the tokenizer knows ids that the model has no embedding for; "
                "prompts that need them are refused",
                tokenizer_ids=self._encoder.vocab_size,
                model_ids=info.vocab_size,
            )

    async def _put_away(self) -> None:
        encoder, self._encoder, self.info = self._encoder, None, None
        self._tried.clear()  # a run that goes on from here waits for the next load
        await self.engine.stop()
        if encoder is not None:
            await asyncio.to_thread(encoder.close)
            del encoder
            gc.collect()  # what clients left behind may hold it in cycles, seldom looked for
