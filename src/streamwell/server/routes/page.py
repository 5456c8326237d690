"""`/` and `/web`: the chat page. Open without a key: it asks for one, and shows nothing before."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

router = APIRouter(tags=["page"])

_INDEX = "index.html"
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
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _Asset:
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str


def _assets(folder: Traversable, place: PurePosixPath) -> dict[str, _Asset]:
    """All files of a folder by their paths in it; nothing else can be asked for."""
    found: dict[str, _Asset] = {}
    for entry in folder.iterdir():
        path = place / entry.name
        if entry.is_dir():
            found |= _assets(entry, path)
        elif path.suffix in _TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[str(path)] = _Asset(content, _TYPES[path.suffix], etag)
    return found


_ASSETS = _assets(files("streamwell.server") / "web", PurePosixPath())


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    """The page; without a key, and before any model is loaded."""
    return _answer(_ASSETS[_INDEX], request)


@router.get("/web/{path:path}", include_in_schema=False)
async def asset(path: str, request: Request) -> Response:
    """A file of the page."""
    if path not in _ASSETS:
        raise HTTPException(404, "the page has no such file")
    return _answer(_ASSETS[path], request)


def _answer(asset: _Asset, request: Request) -> Response:
    """The file, or 304 to a browser that has it.

    It asks each time: a page made of files of two versions would not work.
    """
    headers = {**_HEADERS, "etag": asset.etag, "cache-control": "no-cache"}
    known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
