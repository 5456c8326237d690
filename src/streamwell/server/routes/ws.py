"""`/v1/ws` and `/`: who may open a WebSocket.

What is said over it is up to `chat_socket` and `chatbot`.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from fastapi import APIRouter, WebSocket
from pydantic import ValidationError

from streamwell.core.errors import InvalidRequest
from streamwell.server.chat_socket import NO_KEY, ChatSocket, close, receive_text
from streamwell.server.chatbot import Chatbot
from streamwell.server.convert.ws import fields_of, message_of
from streamwell.server.deps import Services, get_services, sent_key
from streamwell.server.errors import error_response
from streamwell.server.keys import KeyRing
from streamwell.server.schemas.ws import AuthMessage

router = APIRouter(tags=["runs"])
root_router = APIRouter(tags=["prompts"])

#: How long a client without a key in its handshake may take to send one.
AUTH_TIMEOUT_S = 5.0


@router.websocket("/ws")
async def chat(socket: WebSocket) -> None:
    """Prompts in, text out, any number of times."""
    services = get_services(socket)
    tenant = await _admitted(socket, services)
    if tenant is not None:
        await ChatSocket(socket, services, tenant).serve()


@root_router.websocket("/")
async def chatbot(socket: WebSocket) -> None:
    """One conversation, in bare text."""
    services = get_services(socket)
    tenant = await _admitted(socket, services)
    if tenant is not None:
        await Chatbot(socket, services, tenant).serve()


async def _admitted(socket: WebSocket, services: Services) -> str | None:
    """The tenant of a connection, which is accepted then; `None` if it was refused.

    A key in the handshake, or a ticket, is more than a page of another site can send. Without
    one the page must be ours: browsers open WebSockets to any server, whoever asks them to.
    """
    has_key, tenant = _of_handshake(socket, services.keys)
    if has_key and tenant is None:
        headers = {"WWW-Authenticate": "Bearer"}
        refusal = error_response(
            401, "no valid API key was sent", code="invalid_api_key", headers=headers
        )
        await socket.send_denial_response(refusal)
        return None
    if not has_key and not _is_same_origin(socket):
        message = "pages of other sites need an API key or a ticket"
        refusal = error_response(403, message, "permission_error", code="wrong_origin")
        await socket.send_denial_response(refusal)
        return None
    await socket.accept()
    if tenant is None:
        tenant = await _of_first_message(socket, services.keys)
    return tenant


def _of_handshake(socket: WebSocket, keys: KeyRing) -> tuple[bool, str | None]:
    """Whether the handshake has a key or a ticket, and whose; without keys all are one tenant."""
    if keys.is_open:
        return False, ""
    if (ticket := socket.query_params.get("ticket")) is not None:
        return True, keys.tenant_of_ticket(ticket)
    key = sent_key(socket)
    return key is not None, None if key is None else keys.tenant(key)


async def _of_first_message(socket: WebSocket, keys: KeyRing) -> str | None:
    """The tenant of the key in the first message; who sends none in time is sent away."""
    text, tenant = None, None
    try:
        async with asyncio.timeout(AUTH_TIMEOUT_S):
            text = await receive_text(socket)
        if text is not None:
            message = message_of(fields_of(text))
            tenant = keys.tenant(message.key) if isinstance(message, AuthMessage) else None
    except (InvalidRequest, ValidationError, TimeoutError):
        pass  # as good as no key
    if tenant is None:
        await close(socket, NO_KEY, "no valid API key was sent")
    return tenant


def _is_same_origin(socket: WebSocket) -> bool:
    """The page that asks, if it is one, was loaded from this address."""
    origins = socket.headers.getlist("origin")
    if not origins:
        return True  # no browser
    try:
        origin = urlsplit(origins[0])
        port = {"http": 80, "https": 443}.get(origin.scheme)
        host = urlsplit(f"//{socket.headers.get('host', '')}")
        same_port = (origin.port or port) == (host.port or port)
    except ValueError:
        return False
    is_known = len(origins) == 1 and port is not None and origin.hostname is not None
    return is_known and same_port and origin.hostname == host.hostname
