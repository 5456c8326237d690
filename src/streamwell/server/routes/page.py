"""`/`: a page that says what this address is."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import HTMLResponse

router = APIRouter(tags=["page"])

_PAGE = (files("streamwell.server") / "web" / "index.html").read_text(encoding="utf-8")
_HEADERS = {"content-security-policy": "default-src 'none'; frame-ancestors 'none'"}


@router.get("/", include_in_schema=False)
async def index() -> HTMLResponse:
    """The page; open without a key, and without anything to load."""
    return HTMLResponse(_PAGE, headers=_HEADERS)
