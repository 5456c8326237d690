"""API keys: what is open without one, what is not, and no way around it."""

from __future__ import annotations

import socket
import subprocess
import sys
from unittest.mock import Mock

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import APIWebSocketRoute, iter_route_contexts
from harness import DEADLINE_S, HOST, ServerProcess, clean_environment

from streamwell.models import brooklet_path
from streamwell.settings import Settings
from streamwell.wiring import build

pytestmark = pytest.mark.slow

KEY, OTHER_KEY = "sk-one", "sk-two"
OPERATORS = {"/models/load", "/models/unload"}
OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/live", "/ready", "/health")}
BODY = {"prompt": "Hello", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}


def _routes() -> list[tuple[str, str]]:
    """Method and path of every route of the application, as the application has them."""
    app = build(Settings(engine="scripted"), {"brooklet": brooklet_path()}, None).asgi
    while not isinstance(app, FastAPI):
        app = app._app
    routes = [
        r for r in iter_route_contexts(app.routes) if not isinstance(r.route, APIWebSocketRoute)
    ]
    return sorted(
        (method, str(route.path)) for route in routes for method in route.methods or {"GET"}
    )


ROUTES = _routes()
CLOSED = [route for route in ROUTES if route not in OPEN]


def _path(route: str) -> str:
    return route.replace("{model_id:path}", "brooklet").replace("{path:path}", "app.js")


def test_the_open_routes_are_these() -> None:
    """Only health is open, beside the page; a new route is closed unless it is named here."""
    assert OPEN <= set(ROUTES)
    assert len(CLOSED) >= 8


@pytest.mark.parametrize(("key", "num_warnings"), [("x" * 15, 1), ("x" * 16, 0)])
def test_a_key_that_can_be_guessed_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, key: str, num_warnings: int
) -> None:
    """In the log; it is no reason to refuse it."""
    log = Mock()
    monkeypatch.setattr("streamwell.wiring.log", log)
    settings = Settings(engine="scripted", api_key=("x" * 30,), admin_key=(key,))
    build(settings, {"brooklet": brooklet_path()}, None)

    assert num_warnings == sum("guessed" in call.args[0] for call in log.warning.call_args_list)


@pytest.mark.parametrize("path", sorted({path for _, path in OPEN}))
def test_health_and_the_page_need_no_key(keyed: ServerProcess, path: str) -> None:
    """Orchestrators and browsers ask without a key."""
    assert 200 == keyed.client.get(_path(path)).status_code


NOT_KEYS = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": "Bearer"},
    {"authorization": KEY},
    {"authorization": f"Basic {KEY}"},
    {"authorization": f"Bearer {KEY}, {OTHER_KEY}"},
    {"x-api-key": "wrong"},
    {"x-api-key": ""},
    {"x-api-key": KEY[:-1]},
    {"cookie": f"api_key={KEY}"},
]
KEYS = [
    {"authorization": f"Bearer {KEY}"},
    {"authorization": f"bearer {OTHER_KEY}"},
    {"x-api-key": KEY},
    {"x-api-key": OTHER_KEY},
]


def _check_refused(response: httpx2.Response) -> None:
    error = response.json()["error"]
    assert 401 == response.status_code, error
    assert "Bearer" == response.headers["www-authenticate"]
    assert ("invalid_request_error", "invalid_api_key") == (error["type"], error["code"])


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_no_route_opens_without_a_key(keyed: ServerProcess, method: str, path: str) -> None:
    """401 with `WWW-Authenticate`, whatever is sent instead of a key; the query is no place."""
    for headers in NOT_KEYS:
        body = BODY if method == "POST" else None
        _check_refused(keyed.client.request(method, _path(path), json=body, headers=headers))
    query = f"?api_key={KEY}&key={KEY}"
    _check_refused(keyed.client.request(method, _path(path) + query, json=body))


@pytest.mark.parametrize("path", [path for method, path in CLOSED if method == "POST"])
@pytest.mark.parametrize("content", [b"", b"{not JSON", b"[" * 1000, b"{}"])
def test_the_key_is_looked_at_before_the_body(
    keyed: ServerProcess, path: str, content: bytes
) -> None:
    """Who has no key learns nothing about the body: it is not even parsed."""
    headers = {"content-type": "application/json"}
    _check_refused(keyed.client.post(_path(path), content=content, headers=headers))


def test_nothing_is_read_of_strangers(keyed: ServerProcess) -> None:
    """They are refused by the headers alone, however much they say will come."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    with socket.create_connection((HOST, keyed.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head)
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_every_route_opens_with_a_key(keyed: ServerProcess, method: str, path: str) -> None:
    """Each of the keys opens all but what operators do, as a bearer token or as `x-api-key`."""
    for headers in KEYS:
        body = BODY if method == "POST" else None
        response = keyed.client.request(method, _path(path), json=body, headers=headers)

        if path.removeprefix("/v1") in OPERATORS:  # tests/e2e/test_several_models.py opens them
            assert (403, "not_allowed") == (response.status_code, response.json()["error"]["code"])
            continue
        assert response.status_code in {200, 201, 204, 400, 404, 405}, response.text


BAD_HOSTS = ["a/health?x=", "a/live#", "/health", "127.0.0.1/ready?", "a\\health", "@/live"]


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/models"), ("POST", "/v1/completions")])
def test_no_host_header_opens_a_route(
    keyed: ServerProcess, method: str, path: str, host: str
) -> None:
    """A `Host` that looks like an open path changes nothing: the request's own path counts."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 18\r\n\r\n"
    with socket.create_connection((HOST, keyed.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head.encode() + b'{"prompt":"Hello"}')
        with connection.makefile("rb") as answer:
            status_line = answer.readline()
            answer.read()

    assert status_line.split()[1] in {b"400", b"401"}


@pytest.mark.parametrize(
    "path", ["/health/../v1/models", "//v1/models", "/v1//models", "/V1/MODELS"]
)
def test_no_spelling_of_a_path_opens_it(keyed: ServerProcess, path: str) -> None:
    """Odd paths are unknown or closed, never open."""
    head = f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    with socket.create_connection((HOST, keyed.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head.encode())
        with connection.makefile("rb") as answer:
            status_line = answer.readline()
            answer.read()

    assert status_line.split()[1] in {b"401", b"404"}


UPGRADE = {
    "connection": "upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.mark.parametrize("headers", [{}, UPGRADE], ids=["http", "websocket"])
def test_without_a_key_only_its_own_names_are_answered(
    scripted: ServerProcess, keyed: ServerProcess, headers: dict[str, str]
) -> None:
    """A page whose name leads to this machine is refused; where a key guards, any name will do."""
    path = "/v1/ws" if headers else "/v1/models"
    foreign = headers | {"host": "evil.example"}
    refused = scripted.client.get(path, headers=foreign)

    assert (403, "wrong_host") == (refused.status_code, refused.json()["error"]["code"])
    assert 401 == keyed.client.get(path, headers=foreign | {"x-api-key": "wrong"}).status_code
    assert 200 == scripted.client.get("/v1/models", headers={"host": "localhost:1"}).status_code


def test_an_open_server_without_a_key_is_refused() -> None:
    """Beyond loopback a key is required, and an empty one is none; the command says so."""
    flags = ("--host", "192.0.2.1", "--api-key", "")
    command = [sys.executable, "-m", "streamwell", "serve", "--engine", "scripted", "--port", "0"]
    result = subprocess.run(
        [*command, *flags],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )

    assert 2 == result.returncode, result.stderr
    assert "api-key" in result.stderr
