"""A running server, as the commands that talk to one see it; failures are one line for people."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import httpx2

from streamwell.cli.address import Address
from streamwell.cli.harmless import harmless
from streamwell.core.errors import InvalidRequest, LoadError
from streamwell.core.loopback import is_loopback

CONNECT_S = 10.0
#: A server of ours says something at least every `--sse-ping-s`; after so long it is gone.
SILENCE_S = 120.0
_START_TIMEOUT_S = 300.0
_NOT_COMPATIBLE = "this does not look like an OpenAI-compatible server"
#: What comes of a server that is not there yet, and not of a request that cannot be sent at all.
_AWAY = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)


class UnfitServer(Exception):
    """Nobody is there, or it speaks another language; the message says so to the user."""


@contextlib.contextmanager
def connected(address: Address) -> Iterator[httpx2.Client]:
    """A client of the server, which answers; what is wrong with it ends the process with 1.

    Raises:
        InvalidRequest: the key cannot be one.
    """
    headers = address.headers
    with told(address.base):
        check_answers(address.base)
        with client_of(address.base, headers) as client:
            yield client


def client_of(base: str, headers: dict[str, str]) -> httpx2.Client:
    timeout = httpx2.Timeout(CONNECT_S, read=None)
    # plain HTTP needs no certificates, and loading them takes a tenth of a second
    return httpx2.Client(base_url=base, headers=headers, timeout=timeout, **transport_of(base))


def transport_of(base: str) -> _Transport:
    """How a client gets there: this machine is reached without the proxy of the environment."""
    is_here = is_loopback(httpx2.URL(base).host)
    return {"verify": base.startswith("https"), "trust_env": not is_here}


class _Transport(TypedDict):
    verify: bool
    trust_env: bool


@contextlib.contextmanager
def told(url: str) -> Iterator[None]:
    """End the process with 1, and a line that says why, when the server is not as it should be."""
    try:
        yield
    except UnfitServer as error:
        sys.exit(f"streamwell: {error}")
    except httpx2.HTTPError as error:
        sys.exit(f"streamwell: the connection to {url} failed: {reason_of(error)}")
    except UnicodeEncodeError:
        raise InvalidRequest("what is given on the command line must be UTF-8") from None


def reason_of(error: Exception) -> str:
    """In one line."""
    return harmless(" ".join(str(error).split())) or type(error).__name__


def answers(url: str) -> bool:
    try:
        httpx2.get(f"{url}/live", timeout=2.0, **transport_of(url))
    except (httpx2.TransportError, httpx2.InvalidURL):
        return False
    return True


def check_answers(url: str) -> None:
    """Raises `UnfitServer`, with what to do."""
    if not answers(url):
        raise UnfitServer(
            f"no server answers at {url}: start one with `streamwell serve`, or name another with "
            "--url, STREAMWELL_URL or STREAMWELL_PORT"
        )


def call(client: httpx2.Client, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - httpx2's own
    """The JSON object that a route answers with.

    Raises:
        InvalidRequest: the server refused, in its own words.
        UnfitServer: it answered with something else.
    """
    response = client.request(method, path, **options)
    body = parsed(response)
    if response.is_success and isinstance(body, dict):
        return body
    raise refusal(response)


def model_names(client: httpx2.Client) -> list[str]:
    """The models of a server, the first of which answers requests that name none.

    Raises:
        InvalidRequest, UnfitServer: as `call` does, also if it is no list of models.
    """
    body = call(client, "GET", "/v1/models")
    with understood("GET /v1/models"):
        return [str(card["id"]) for card in body["data"]]


def refusal(response: httpx2.Response) -> Exception:
    """What an answer that has been read, and is no success, comes to."""
    text = message_of(parsed(response))
    if response.status_code == 401:
        text = f"{text or 'the server wants a key'}: give --api-key or STREAMWELL_API_KEY"
    if text:
        return InvalidRequest(text)
    return UnfitServer(unfit(response))


@contextlib.contextmanager
def understood(request: str) -> Iterator[None]:
    """Within, what a request is answered with is taken apart, and nothing else is done.

    Raises:
        UnfitServer: it is of another shape.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise UnfitServer(
            f"{_NOT_COMPATIBLE}: {request} is answered with JSON of another kind"
        ) from None


def parsed(response: httpx2.Response) -> Any:  # noqa: ANN401 - it may be anything
    """The JSON of an answer that has been read; `None` if it is none."""
    try:
        return response.json()
    except ValueError:
        return None


def message_of(body: Any) -> str:  # noqa: ANN401 - it may be anything
    """What an OpenAI-compatible server says is wrong; empty if this is not its way to say it."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return harmless(" ".join(message.split())) if isinstance(message, str) else ""


def unfit(response: httpx2.Response) -> str:
    request, kind = response.request, response.headers.get("content-type", "nothing")
    return (
        f"{_NOT_COMPATIBLE}: {request.method} {request.url.path} is answered with "
        f"{response.status_code} and {harmless(kind)}"
    )


def wait_until_ready(
    client: httpx2.Client, *, has_ended: Callable[[], bool] = lambda: False
) -> None:
    """Wait while a server of ours loads its model; one of another make is taken as it is.

    Args:
        client: of the server.
        has_ended: whether its process has, where that is known.

    Raises:
        LoadError: the model cannot be loaded, it takes more than five minutes, or the server ended.
        InvalidRequest, UnfitServer: it is of another make, and does not answer as such servers do.
    """
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    was_told = False
    while time.monotonic() < deadline_s and not has_ended():
        with contextlib.suppress(*_AWAY):
            status = parsed(client.get("/ready"))
            if not isinstance(status, dict) or "status" not in status:
                _check_compatible(client)
                return
            client.timeout = httpx2.Timeout(CONNECT_S, read=SILENCE_S)
            if status["status"] == "ready":
                return
            if error := status.get("error"):
                raise LoadError(harmless(str(error)))
            if not was_told:
                state = harmless(str(status["status"]))
                print(f"streamwell: the server is {state}; waiting", file=sys.stderr)
                was_told = True
        time.sleep(0.1)
    hint = "; `streamwell serve` says why" if has_ended() else ""
    raise LoadError(f"the server did not become ready{hint}")


def _check_compatible(client: httpx2.Client) -> None:
    """Ask for what every OpenAI-compatible server has, before the user types a line."""
    if "data" not in (models := call(client, "GET", "/v1/models")):
        raise UnfitServer(f"GET /v1/models is answered with {models}")
