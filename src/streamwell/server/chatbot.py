"""One connection of the WebSocket `/`: prompts and answers in bare text, one conversation.

A run of this has one choice, so its events are START 0, then a DELTA for each text frame. The
number of text frames that a client has of an answer is therefore the number of the last event that
it saw: who counts frames can go on after a cut, though no frame has a number on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing

import orjson
import structlog
from fastapi.exceptions import RequestValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from streamwell.core.errors import InvalidRequest, RunNotFound, ShuttingDown, StreamwellError
from streamwell.core.types import EventKind, RunEvent, RunKind
from streamwell.server.chat_socket import RESTART, close, receive_text
from streamwell.server.convert.prompts import chatbot_run
from streamwell.server.convert.unsupported import refuse_unsupported
from streamwell.server.deps import Services
from streamwell.server.errors import INTERNAL_ERROR, describe, describe_invalid
from streamwell.server.queries import from_query
from streamwell.server.run_response import failure
from streamwell.server.schemas.prompts import ChatbotRequest, Preset
from streamwell.service.reader import Reader

log = structlog.get_logger()

#: The frame after the last one of an answer.
FINISHED = "<<Response Finished>>"
_RUN = "<<Run {}>>"
_INVALID = 1008


class Chatbot:
    """An accepted connection of a tenant."""

    def __init__(self, socket: WebSocket, services: Services, tenant: str) -> None:
        self._socket = socket
        self._services = services
        self._tenant = tenant
        #: What the query says, and the preset that it names; see `_begin`.
        self._asked = ChatbotRequest()
        self._preset = Preset()
        #: The run whose conversation goes on; empty: there is none.
        self._last_run = ""
        self._num_answers = 0
        self._hearing: asyncio.Task[str | None] = asyncio.create_task(receive_text(socket))

    async def serve(self) -> None:
        """Answer prompts one after the other until the client leaves; its run is paused then."""
        try:
            if await self._begin():
                if self._asked.run is not None:
                    await self._attend(self._resume(self._asked.run))
                while (prompt := await self._hearing) is not None:
                    self._hearing = asyncio.create_task(receive_text(self._socket))
                    await self._attend(self._answer(prompt))
        except WebSocketDisconnect:
            pass
        finally:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
            log.info("chatbot client disconnected", num_answers=self._num_answers)

    async def _begin(self) -> bool:
        """Look at the query; what is wrong with it is told, and ends the connection."""
        try:
            self._asked = from_query(ChatbotRequest, self._socket)
            self._services.unknown_fields.note(refuse_unsupported(self._asked.extra_fields))
            self._preset = self._services.presets.find_for_chat(self._asked.preset)
        except RequestValidationError as error:
            body = describe_invalid(error.errors())
        except InvalidRequest as error:
            _status, body = describe(error)
        else:
            return True
        await self._send(orjson.dumps(body).decode())
        await close(self._socket, _INVALID, "the query is not valid")
        return False

    async def _attend(self, answering: Coroutine[None, None, None]) -> None:
        """Answer, unless the client leaves meanwhile. A prompt that comes early waits."""
        telling = asyncio.create_task(self._tell(answering))
        try:
            await asyncio.wait({telling, self._hearing}, return_when=asyncio.FIRST_COMPLETED)
            has_left = self._hearing.done() and self._hearing.result() is None
            if not has_left:
                await telling
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, answering: Coroutine[None, None, None]) -> None:
        """Wait for an answer and say that it is over; what goes wrong comes as an error body."""
        try:
            await answering
        except ShuttingDown:
            await close(self._socket, RESTART, "the server is shutting down; the run goes on after")
            raise WebSocketDisconnect(RESTART) from None
        except WebSocketDisconnect:
            raise
        except StreamwellError as error:
            _status, body = describe(error)
            await self._send(orjson.dumps(body).decode())
        except Exception:  # the rim: the connection stays usable
            log.exception("prompt failed")
            await self._send(orjson.dumps(INTERNAL_ERROR).decode())
        await self._send(FINISHED)

    async def _answer(self, prompt: str) -> None:
        if not prompt:
            raise InvalidRequest("the prompt is empty", "prompt")
        run = chatbot_run(self._asked, prompt, self._preset, self._tenant, self._last_run)
        await self._follow(await self._services.conversations.answer(run))

    async def _resume(self, run_id: str) -> None:
        """Send the rest of an answer, and go on with its conversation."""
        runs = self._services.runs
        spec = await runs.find(run_id, self._tenant)
        if spec.kind is not RunKind.RESPONSE:
            raise RunNotFound
        self._last_run = spec.terms.previous_run_id
        try:
            reader = await runs.attach(run_id, self._tenant, self._asked.after)
        except InvalidRequest as error:
            raise InvalidRequest(str(error), "after") from None
        await self._follow(reader)

    async def _follow(self, reader: Reader) -> None:
        """Send an answer; one that fails is no part of the conversation."""
        try:
            async with aclosing(reader.events()) as batches:
                async for events in batches:
                    for event in events:
                        await self._send_event(event)
        finally:
            reader.close()
        self._last_run = reader.spec.run_id
        self._num_answers += 1

    async def _send_event(self, event: RunEvent) -> None:
        if event.kind is EventKind.START and self._asked.ids:
            await self._send(_RUN.format(event.run_id))
        elif event.kind is EventKind.DELTA:
            await self._send(event.text)
        elif (error := failure(event)) is not None:
            raise error

    async def _send(self, text: str) -> None:
        try:
            await self._socket.send_text(text)
        except RuntimeError:  # it has been closed, for something that the client sent
            raise WebSocketDisconnect from None
