"""What is said of a model when it is loaded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from streamwell.backends.scripted import ScriptedEngine
from streamwell.core.engine_state import EngineInfo, EngineState
from streamwell.core.errors import LoadError
from streamwell.core.types import Message
from streamwell.service import served_model
from streamwell.service.lifecycle import Phase
from streamwell.service.served_model import ServedModel

MODEL_IDS = 8


@dataclass
class Words:
    """A tokenizer of some size."""

    vocab_size: int

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        return [len(messages)]

    def encode_text(self, text: str) -> list[int]:
        return [len(text)]

    is_closed: bool = field(default=False, compare=False)

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Warnings:
    """A logger that keeps what it is told."""

    events: list[dict[str, object]] = field(default_factory=list)

    def warning(self, _event: str, **values: object) -> None:
        self.events.append(values)


@pytest.mark.parametrize(
    ("tokenizer_ids", "expected"),
    [(7, []), (8, []), (9, [{"tokenizer_ids": 9, "model_ids": MODEL_IDS}])],
)
def test_a_tokenizer_larger_than_its_model_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tokenizer_ids: int, expected: list[dict[str, int]]
) -> None:
    """The operator reads it when the model is loaded; a smaller one is nothing unusual."""
    warnings = Warnings()
    monkeypatch.setattr(served_model, "log", warnings)

    async def scenario() -> None:
        engine = ScriptedEngine(lambda _ids, _seed, _index: 1, vocab_size=MODEL_IDS)
        model = ServedModel(("m",), engine, lambda: Words(tokenizer_ids), {})
        await model.load()
        assert model.is_ready
        await engine.stop()

    asyncio.run(scenario())

    assert expected == warnings.events


class SlowEngine(ScriptedEngine):
    """An engine that reads weights for ever."""

    async def ready(self) -> EngineInfo:
        await asyncio.Event().wait()
        raise AssertionError


def test_a_tokenizer_that_cannot_be_loaded_is_told_before_all_weights_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine is given a moment to say more of the folder, and is then stopped."""
    monkeypatch.setattr(served_model, "_LAST_WORDS_S", 0.01)

    def load_encoder() -> Words:
        raise LoadError("it has no tokens")

    async def scenario() -> None:
        engine = SlowEngine(lambda _ids, _seed, _index: 1, vocab_size=MODEL_IDS)
        model = ServedModel(("m",), engine, load_encoder, {})
        with pytest.raises(LoadError, match="it has no tokens"):
            await model.load()
        assert (Phase.UNLOADED, "it has no tokens") == (model.phase, model.error)

    asyncio.run(scenario())


def test_a_model_whose_tokenizer_is_missing_still_loads() -> None:
    """Its engine is up first; nobody is told that it is ready before it is."""

    async def scenario() -> None:
        may_load = threading.Event()

        def load_encoder() -> Words:
            may_load.wait()
            return Words(MODEL_IDS)

        engine = ScriptedEngine(lambda _ids, _seed, _index: 1, vocab_size=MODEL_IDS)
        model = ServedModel(("m",), engine, load_encoder, {})
        loading = model.load()
        await asyncio.sleep(0)  # let it start the engine
        await engine.ready()
        assert (False, EngineState.LOADING) == (model.is_ready, model.state)

        may_load.set()
        await loading
        assert (True, EngineState.READY) == (model.is_ready, model.state)
        await engine.stop()

    asyncio.run(scenario())
