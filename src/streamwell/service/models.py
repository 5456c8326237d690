"""The models that are served: an engine and a tokenizer each, under one or more names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from streamwell.core.errors import EngineUnavailable, LoadError, ModelLoading, ModelNotFound
from streamwell.core.ports import Engine
from streamwell.core.types import EngineInfo, EngineState, Message

log = structlog.get_logger()


class Encoder(Protocol):
    """Words to ids and back; the encoding half blocks and is called in worker threads."""

    #: One more than the largest id that it knows.
    vocab_size: int

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` works; asked of encoder-decoders only, which can do without."""
        ...

    def encode_chat(self, messages: Sequence[Message]) -> list[int]: ...

    def encode_text(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ServedModel:
    """One model: known by its names from the start, usable when it is loaded."""

    def __init__(
        self,
        names: tuple[str, ...],
        engine: Engine,
        load_encoder: Callable[[], Encoder],
        default_sampling: Mapping[str, float],
    ) -> None:
        self.names = names
        self.engine = engine
        self.created_s = int(time.time())
        #: What the model's authors recommend where a request is silent.
        self.default_sampling = default_sampling
        self._load_encoder = load_encoder
        self._encoder: Encoder | None = None
        self.info: EngineInfo | None = None
        #: `load` has come to its end, good or bad.
        self._tried = asyncio.Event()

    async def load(self) -> None:
        """Start the engine and load the tokenizer meanwhile.

        Raises:
            LoadError: the model cannot be served.
        """
        self.engine.start()
        encoder = asyncio.create_task(asyncio.to_thread(self._load_encoder))
        try:
            info = await self.engine.ready()  # what the engine says of a bad folder is clearer
            self._encoder, self.info = await encoder, info
        finally:
            await asyncio.wait([encoder])
            encoder.exception()  # it may be that the engine failed too, and says why
            self._tried.set()
        if self._encoder.vocab_size > info.vocab_size:
            log.warning(
                "the tokenizer knows ids that the model has no embedding for; "
                "prompts that need them are refused",
                tokenizer_ids=self._encoder.vocab_size,
                model_ids=info.vocab_size,
            )

    @property
    def is_ready(self) -> bool:
        return self.info is not None and self.engine.status().state is EngineState.READY

    def require(self) -> tuple[Encoder, EngineInfo]:
        """What a request needs, now.

        Raises:
            ModelLoading: not yet.
            EngineUnavailable: the engine is restarting.
            LoadError: it could not be loaded, and will not be.
        """
        status = self.engine.status()
        if status.state is EngineState.FAILED:
            raise LoadError(status.error)
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
        await self._tried.wait()
        await self.engine.ready()
        return self.require()


class ModelTable:
    """Finds models by name; the first one answers requests that name none."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = tuple(models)
        self._by_name = {name: model for model in models for name in model.names}

    def find(self, name: str) -> ServedModel:
        """The model of this name; the empty name means the first one.

        Raises:
            ModelNotFound: no model has this name.
        """
        if not name:
            return self.models[0]
        try:
            return self._by_name[name]
        except KeyError:
            raise ModelNotFound(name) from None
