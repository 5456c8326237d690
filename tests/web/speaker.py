"""A server in this process whose model says what a test wants it to say, as fast as it wants."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "api"))

import httpx2
import uvicorn
from harness import DEADLINE_S, HOST, eventually
from rig import services_of
from test_tools import TEMPLATE

from streamwell.backends.scripted import ScriptedEngine
from streamwell.core.messages import ChatOptions, Message, PartKind
from streamwell.server.app import create_app
from streamwell.server.deps import Services
from streamwell.service.admission import Admission
from streamwell.service.models import ModelTable
from streamwell.service.run_log import RunLog
from streamwell.service.runs import RunService
from streamwell.service.served_model import ServedModel
from streamwell.store.memory import MemoryStore
from streamwell.telemetry import Metrics, configure_logging
from streamwell.text.response_parser import ResponseParser

_END = 0
_PIECE = re.compile(r"\s+|[^\s]{1,6}")


class Pieces:
    """An encoder whose tokens are pieces of texts, numbered as they are met; a prompt is one."""

    has_chat_template = True
    vocab_size = sys.maxsize

    def __init__(self) -> None:
        self.texts = [""]
        self._ids: dict[str, int] = {"": _END}

    def id_of(self, text: str) -> int:
        if text not in self._ids:
            self._ids[text] = len(self.texts)
            self.texts.append(text)
        return self._ids[text]

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]:
        lines = [f"{message.role}: {message.content}" for message in messages]
        return [self.id_of("\n".join([*lines, "assistant\n"]))]

    def encode_text(self, text: str) -> list[int]:
        return [self.id_of(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.texts[token_id] for token_id in ids)

    def answer_parser(
        self, prompt_ids: Sequence[int], kinds: Sequence[PartKind]
    ) -> ResponseParser | None:
        return ResponseParser(TEMPLATE, kinds, "")

    def close(self) -> None:
        """There is nothing to give back."""


class Speaker(ScriptedEngine):
    """Says `answer(prompt, seed)`, a token every `step_s` seconds."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.answer: Callable[[str, int], str] = lambda _prompt, _seed: ""
        self._tokens = lru_cache(self._tokens_of)
        super().__init__(
            self._next, vocab_size=sys.maxsize, max_model_len=100_000, eos_token_id=_END
        )

    def says(self, answer: str | Callable[[str, int], str], step_s: float = 0.0) -> None:
        """From here on, to every prompt."""
        self.answer = answer if callable(answer) else lambda _prompt, _seed: answer
        self._step_s = step_s
        self._tokens.cache_clear()

    def _tokens_of(self, prompt: str, seed: int) -> list[int]:
        said = self.answer(prompt, seed)
        return [*(self.pieces.id_of(piece) for piece in _PIECE.findall(said)), _END]

    def _next(self, prompt_ids: Sequence[int], seed: int, index: int) -> int:
        tokens = self._tokens(self.pieces.texts[prompt_ids[0]], seed)
        return tokens[min(index, len(tokens) - 1)]


class SpeakingServer:
    """Where it is, what it says, and a client for its API."""

    def __init__(self, port: int, speaker: Speaker) -> None:
        self.url = f"http://{HOST}:{port}"
        self.says = speaker.says
        self.client = httpx2.Client(base_url=self.url, timeout=DEADLINE_S, verify=False)

    def get(self, path: str) -> Any:  # noqa: ANN401 - whatever JSON can say
        response = self.client.get(path)
        assert 200 == response.status_code, response.text
        return response.json()

    def chats(self) -> list[dict[str, Any]]:
        chats: list[dict[str, Any]] = self.get("/v1/conversations?limit=100")["data"]
        return chats

    def items(self, chat: str) -> list[dict[str, Any]]:
        path = f"/v1/conversations/{chat}/items?limit=100&order=asc"
        items: list[dict[str, Any]] = self.get(path)["data"]
        return items


def _services(model: ServedModel, speaker: Speaker, keys: tuple[str, ...]) -> Services:
    metrics = Metrics("0", lambda: {"m": speaker.stats()})
    store, table = MemoryStore(), ModelTable([model])
    runs = RunService(table, RunLog(store), Admission(64), metrics, grace_s=30.0)
    return services_of(runs, table, store, metrics, keys)


@contextmanager
def speaking_server(*keys: str) -> Iterator[SpeakingServer]:
    """A server on a port of its own, in a thread; its chats are in memory."""
    configure_logging("critical", as_json=True)
    pieces = Pieces()
    speaker = Speaker(pieces)
    model = ServedModel(("parrot",), speaker, lambda: pieces, {})
    services = _services(model, speaker, keys)
    config = uvicorn.Config(
        create_app(services, max_body_bytes=1 << 22), log_level="critical", lifespan="off"
    )
    server = uvicorn.Server(config)

    async def serve(listener: socket.socket) -> None:
        await services.runs.log.open()
        await model.load()
        try:
            await server.serve([listener])
        finally:
            await services.runs.drain(0)
            await speaker.stop()
            await services.runs.log.close()

    with socket.create_server((HOST, 0)) as listener:
        speaking = SpeakingServer(listener.getsockname()[1], speaker)
        thread = threading.Thread(target=lambda: asyncio.run(serve(listener)))
        thread.start()
        try:
            eventually(lambda: server.started, "the speaker listens")
            yield speaking
        finally:
            server.force_exit = server.should_exit = True
            thread.join()
            speaking.client.close()
