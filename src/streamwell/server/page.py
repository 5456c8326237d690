"""`/` and `/web`: the chat page. Open without a key: it asks for one, and shows nothing before.

Plain ASGI, which needs none of the application's imports: the page is there before they are done.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.types import ASGIApp, Receive, Scope, Send

_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".LICENSE": "text/plain",
    ".md": "text/plain",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_CHARSET = dict.fromkeys((".css", ".html", ".js", ".LICENSE", ".md"), "; charset=utf-8")
#: What the page may load, and from where: its own files, and this server's API. What a model has
#: written cannot run, nor tell another host of anything.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify streamwell",
    )
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    # it is asked for each time: a page made of files of two versions would not work
    (b"cache-control", b"no-cache"),
)


@dataclass(frozen=True, slots=True)
class _Asset:
    """One file of the page."""

    content: bytes
    media_type: bytes
    etag: bytes


def _assets(folder: Traversable, place: PurePosixPath) -> dict[str, _Asset]:
    """All files of a folder by their paths; nothing else can be asked for."""
    found: dict[str, _Asset] = {}
    for entry in folder.iterdir():
        path = place / entry.name
        if entry.is_dir():
            found |= _assets(entry, path)
        elif path.suffix in _TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode()
            media_type = f"{_TYPES[path.suffix]}{_CHARSET.get(path.suffix, '')}".encode()
            found[str(path)] = _Asset(content, media_type, etag)
    return found


_ASSETS = _assets(files("streamwell.server") / "web", PurePosixPath("/web"))
_ASSETS["/"] = _ASSETS.pop("/web/index.html")


class Page:
    """Answers for the files of the page; what it has not goes on to the application behind it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_asked = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        asset = _ASSETS.get(scope["path"]) if is_asked else None
        if asset is None:
            await self._app(scope, receive, send)
            return
        is_known = asset.etag in _known(scope)
        headers = [*_HEADERS, (b"etag", asset.etag)]
        if not is_known:
            size = str(len(asset.content)).encode()
            headers += [(b"content-type", asset.media_type), (b"content-length", size)]
        status = 304 if is_known else 200
        body = b"" if is_known or scope["method"] == "HEAD" else asset.content
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _known(scope: Scope) -> list[bytes]:
    """Tags of what a browser has."""
    fields = (value for name, value in scope["headers"] if name == b"if-none-match")
    return [tag.strip() for field in fields for tag in field.split(b",")]
