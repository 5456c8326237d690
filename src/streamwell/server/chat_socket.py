"""One connection of `/v1/ws`: its messages are answered in order, its runs are followed at once."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing

import structlog
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from streamwell.core.errors import InvalidRequest, ShuttingDown, StreamwellError, Unavailable
from streamwell.core.types import end_of
from streamwell.server.convert.text import text_run
from streamwell.server.convert.unsupported import refuse_unsupported
from streamwell.server.convert.ws import (
    FrameEncoder,
    error_frame,
    fields_of,
    message_of,
    suspended_frame,
)
from streamwell.server.deps import Services
from streamwell.server.errors import INTERNAL_ERROR, describe, describe_invalid
from streamwell.server.schemas.runs import StartRunRequest
from streamwell.server.schemas.ws import (
    AuthMessage,
    CancelMessage,
    ClientMessage,
    PromptMessage,
    ResumeMessage,
)
from streamwell.service.reader import Reader

log = structlog.get_logger()

#: Runs that one connection may follow at a time.
MAX_RUNS = 16
#: What an error frame repeats of the message that it answers.
_ECHOED = ("id", "run")
#: Close codes: not text; come back later; the key opens nothing (of the range for applications).
NOT_TEXT, RESTART, NO_KEY = 1003, 1012, 4401


async def receive_text(socket: WebSocket) -> str | None:
    """The next message; `None` when the client has gone, or is sent away for what is no text."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    text: str | None = message.get("text")
    if text is None:
        await close(socket, NOT_TEXT, "only text frames are understood")
    return text


async def close(socket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it is closed already
        await socket.close(code, reason)


class ChatSocket:
    """An accepted connection of a tenant."""

    def __init__(self, socket: WebSocket, services: Services, tenant: str) -> None:
        self._socket = socket
        self._services = services
        self._tenant = tenant
        #: By run; whoever is done leaves by itself.
        self._readers: dict[str, Reader] = {}
        self._followers: set[asyncio.Task[None]] = set()
        self._is_suspended = False

    async def serve(self) -> None:
        """Answer until the client leaves; what it followed alone is paused then."""
        try:
            while (text := await receive_text(self._socket)) is not None:
                await self._answer(text)
        finally:
            for reader in self._readers.values():  # a task that has not begun would not do it
                reader.close()
            for follower in self._followers:
                follower.cancel()
            await asyncio.gather(*self._followers, return_exceptions=True)

    async def _answer(self, text: str) -> None:
        """Do what a message asks for; what is wrong with it is told, and nothing more happens."""
        about: dict[str, str] = {}
        try:
            fields = fields_of(text)
            about = {name: fields[name] for name in _ECHOED if isinstance(fields.get(name), str)}
            await self._act(message_of(fields))
        except ValidationError as error:
            await self._send(error_frame(describe_invalid(error.errors()), **about))
        except StreamwellError as error:
            await self._send_error(error, **about)
        except Exception:  # the rim: the connection stays usable
            log.exception("message failed")
            await self._send(error_frame(INTERNAL_ERROR, **about))

    async def _act(self, message: ClientMessage) -> None:
        if not isinstance(message, PromptMessage):
            self._services.unknown_fields.note(message.model_extra or ())
        match message:
            case PromptMessage():
                await self._prompt(message)
            case ResumeMessage():
                await self._resume(message)
            case CancelMessage():
                await self._cancel(message)
            case AuthMessage():
                await self._check_key(message)

    async def _prompt(self, message: PromptMessage) -> None:
        body = StartRunRequest.model_validate(message.model_extra)
        self._services.unknown_fields.note(refuse_unsupported(body.extra_fields))
        run = text_run(body, self._tenant, message.idempotency_key or "")
        self._check_room()
        reader = await self._services.runs.start(run)
        await self._begin(reader, FrameEncoder(reader.spec, (), message.id), message.id)

    async def _resume(self, message: ResumeMessage) -> None:
        self._check_room()
        runs, seq = self._services.runs, message.seq
        spec = await runs.find(message.run, self._tenant)
        events = await runs.log.events(message.run)
        if (end := end_of(events)) is not None and end.seq == seq:
            raise InvalidRequest(f"the run has ended with event {seq}", "seq")
        try:
            reader = await runs.attach(message.run, self._tenant, seq)
        except InvalidRequest as error:
            raise InvalidRequest(str(error), "seq") from None
        seen = [event for event in events if event.seq <= seq]
        encoder = FrameEncoder(spec, seen, message.id)
        await self._begin(reader, encoder, message.id, has_news=len(seen) < len(events))

    async def _cancel(self, message: CancelMessage) -> None:
        """End a run; its last frame is sent once, whether it is followed here or not."""
        runs, is_followed = self._services.runs, message.run in self._readers
        spec = await runs.cancel(message.run, self._tenant)
        if is_followed:
            return
        events = [event async for batch in runs.log.follow(message.run) for event in batch]
        if frame := FrameEncoder(spec, events[:-1]).frame(events[-1]):
            await self._send(frame)

    async def _check_key(self, message: AuthMessage) -> None:
        """A key that comes later than it must changes nothing, but must be right all the same."""
        if self._services.keys.tenant(message.key) != self._tenant:
            await close(self._socket, NO_KEY, "the API key is not valid here")

    def _check_room(self) -> None:
        if len(self._readers) >= MAX_RUNS:
            raise InvalidRequest(f"a connection follows at most {MAX_RUNS} runs at a time")

    async def _begin(
        self,
        reader: Reader,
        encoder: FrameEncoder,
        message_id: str | None,
        *,
        has_news: bool = True,
    ) -> None:
        """Follow a run from now on; what there is of it already is sent before the next answer."""
        run_id = reader.spec.run_id
        if run_id in self._readers:
            reader.close()
            raise InvalidRequest(f"this connection follows {run_id} already", "run")
        self._readers[run_id] = reader
        answered = asyncio.Event()
        following = self._follow(reader, encoder, message_id, answered)
        follower = asyncio.create_task(following, name=run_id)
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        if has_news:
            await answered.wait()

    async def _follow(
        self,
        reader: Reader,
        encoder: FrameEncoder,
        message_id: str | None,
        answered: asyncio.Event,
    ) -> None:
        """Send a run's frames up to its end; a client that reads slowly holds up nobody else."""
        run_id = reader.spec.run_id
        try:
            async with aclosing(reader.events()) as batches:
                async for events in batches:
                    for frame in filter(None, map(encoder.frame, events)):
                        await self._send(frame)
                    answered.set()
        except ShuttingDown as error:
            self._is_suspended = True
            await self._send(suspended_frame(run_id, error.retry_after_s))
        except StreamwellError as error:
            await self._send_error(error, run=run_id, id=message_id)
        except Exception:  # the rim of the task
            log.exception("run cannot be followed")
            await self._send(error_frame(INTERNAL_ERROR, run=run_id))
        finally:
            answered.set()
            reader.close()
            del self._readers[run_id]
        if self._is_suspended and not self._readers:
            await close(self._socket, RESTART, "the server is shutting down")

    async def _send_error(self, error: StreamwellError, **also: str | None) -> None:
        retry_after_s = error.retry_after_s if isinstance(error, Unavailable) else None
        _status, body = describe(error)
        await self._send(error_frame(body, retry_after_s=retry_after_s, **also))

    async def _send(self, frame: bytes) -> None:
        # whoever has gone is noticed by `serve`
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.send({"type": "websocket.send", "text": frame.decode()})
