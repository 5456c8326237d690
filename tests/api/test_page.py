"""`/` and `/web` without a browser: what is served, and how it is guarded."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from http_rig import call
from rig import Rig, run

import streamwell.server

WEB = Path(streamwell.server.__file__).parent / "web"
VENDORED = (WEB / "vendor", Path(__file__).parents[1] / "web" / "vendor")
OWN_SCRIPTS = sorted(WEB.glob("*.js"))
MAX_FILE_LINES = 300


def test_the_page_is_open_and_guarded() -> None:
    """Without a key: the page, which may load and call nothing but what is here."""

    async def test(rig: Rig) -> None:
        answer = await call(rig, "GET", "/")

        assert (200, "text/html; charset=utf-8") == (answer.status, answer.headers["content-type"])
        policy = dict(
            rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; ")
        )
        assert ("'none'", "'self'") == (policy["default-src"], policy["connect-src"])
        assert "'self'" == policy["script-src"] == policy["style-src"]
        assert "nosniff" == answer.headers["x-content-type-options"]
        assert not re.search(
            r"<script(?![^>]*\ssrc=)|\son\w+=|style=", (WEB / "index.html").read_text()
        )

    run(test, keys=("sk-one",))


@pytest.mark.parametrize("path", ["/", "/web/app.js"])
def test_head_is_get_without_a_body(path: str) -> None:
    """Of the page and its files, as monitors ask for them."""

    async def test(rig: Rig) -> None:
        whole, head = await call(rig, "GET", path), await call(rig, "HEAD", path)
        assert (200, b"") == (head.status, b"".join(head.bodies))
        assert whole.headers == head.headers | {"x-request-id": whole.headers["x-request-id"]}
        assert str(len(b"".join(whole.bodies))) == head.headers["content-length"]

    run(test)


def test_files_are_sent_once() -> None:
    """A browser that has a file is told so; it asks again each time, so versions never mix."""

    async def test(rig: Rig) -> None:
        first = await call(rig, "GET", "/web/app.js")
        assert (WEB / "app.js").read_bytes() == b"".join(first.bodies)
        assert "text/javascript; charset=utf-8" == first.headers["content-type"]
        assert "no-cache" == first.headers["cache-control"]
        known = {"if-none-match": f'"other", {first.headers["etag"]}'}
        again = await call(rig, "GET", "/web/app.js", headers=known)
        assert (304, b"") == (again.status, b"".join(again.bodies))

    run(test)


@pytest.mark.parametrize(
    "path", ["", "no.js", "../app.py", "vendor/../../app.py", "/etc/passwd", "vendor", "app.js/"]
)
def test_nothing_else_is_served(path: str) -> None:
    """Neither folders nor what lies beside the page."""

    async def test(rig: Rig) -> None:
        answer = await call(rig, "GET", f"/web/{path}")
        assert (404, "not_found") == (answer.status, answer.json["error"]["code"])

    run(test)


@pytest.mark.parametrize("folder", VENDORED, ids=["page", "tests"])
def test_vendored_files_are_as_they_were_fetched(folder: Path) -> None:
    """Each has its hash in `vendor.json`, and each library its licence."""
    libraries = json.loads((folder / "vendor.json").read_text(encoding="utf-8"))
    expected = {name: digest for entry in libraries for name, digest in entry["files"].items()}
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "vendor.json"]
    found = {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }

    assert expected == found
    assert [] == [
        entry["name"]
        for entry in libraries
        if not any("LICENSE" in name for name in entry["files"])
    ]


@pytest.mark.parametrize("path", OWN_SCRIPTS, ids=lambda path: path.name)
def test_scripts_fit_on_the_desk(path: Path) -> None:
    """Each opens with what it is for, has at most 300 lines, and makes no code of texts."""
    text = path.read_text(encoding="utf-8")

    assert text.startswith("// ")
    assert text.count("\n") <= MAX_FILE_LINES
    assert not re.search(
        r"\beval\(|innerHTML|insertAdjacentHTML|new Function|document\.write", text
    )
