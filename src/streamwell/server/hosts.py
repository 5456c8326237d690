"""Under which names this server may be called.

A server without keys trusts whoever reaches this machine. A page of another site reaches it too,
once that site's own name resolves to a loopback address (DNS rebinding); to the browser the two
are then one site. Only the `Host` header still tells whom the page meant to call.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from streamwell.core.loopback import is_loopback
from streamwell.server.errors import error_response

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(?::[0-9]*)?")


class HostCheck:
    """Refuses requests that call the server by a name which is not its own, or by none.

    Names and addresses of this machine are its own, on any port, and those that are allowed.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        """`allowed_hosts` are names as they stand in a URL, without a port."""
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not self._is_ours(scope):
            message = "the Host header, or the URL, names another server; see --allowed-hosts"
            refusal = error_response(403, message, "permission_error", code="wrong_host")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        match = _HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
        return match is not None and (match[1] in self._allowed or is_loopback(match[1]))
