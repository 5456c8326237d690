"""`streamwell models`: what a server serves or could: listed, loaded, unloaded."""

from __future__ import annotations

import sys
from json import dumps
from typing import TYPE_CHECKING, Any

from cyclopts import App

from streamwell.cli.address import HERE, AsJson, At
from streamwell.cli.harmless import harmless, on_stdout
from streamwell.core.errors import LoadError

if TYPE_CHECKING:
    import httpx2

app = App(name="models", help="Look at what a server serves; load and unload models.")

_MIB = 1 << 20


@app.default
@app.command(name="list")
def list_(*, json: AsJson = False, address: At = HERE) -> None:
    """List models and adapters: their state, their size, and whether they fit into memory.

    Parameters
    ----------
    json
        Print JSON, an object per model and line.
    """
    from streamwell.cli.remote import call, connected, understood
    from streamwell.cli.tables import print_table

    with connected(address) as client:
        body = call(client, "GET", "/v1/models", params={"fits": "true"})
        with understood("GET /v1/models"):
            cards, rows = body["data"], list(map(_row, body["data"]))
    if not json:
        print_table(("model", "state", "size", "context", "family", "fits"), rows)
        return
    for card in cards:
        print(on_stdout(dumps(card, ensure_ascii=False)))


@app.command
def load(name: str, /, *, base: str | None = None, address: At = HERE) -> None:
    """Load a model of the server's `--models-dir`, with a progress bar; wants an operator's key.

    Parameters
    ----------
    name
        Of the model, as `streamwell models` shows it.
    base
        Of an adapter: the model that it adapts.
    """
    from streamwell.cli.remote import connected

    body = {"model": name, "stream": True} | ({"base": base} if base else {})
    with connected(address) as client:
        card = _load(client, body)
    _print_state(card)


@app.command
def unload(name: str, /, *, address: At = HERE) -> None:
    """Unload a model when the runs that use it have ended; wants an operator's key.

    Parameters
    ----------
    name
        Of the model.
    """
    from streamwell.cli.remote import call, connected

    with connected(address) as client:
        card = call(client, "POST", "/v1/models/unload", json={"model": name})
    _print_state(card)


def _load(client: httpx2.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The model's card in the end.

    Raises:
        InvalidRequest: the server refuses.
        LoadError: it cannot be loaded.
        UnfitServer: the stream ended without a word.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    from streamwell.cli.answer_stream import payload_of
    from streamwell.cli.events import frames_of
    from streamwell.cli.remote import UnfitServer, message_of, refusal, understood

    console = Console(stderr=True)
    with (
        client.stream("POST", "/v1/models/load", json=body) as response,
        Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress,
    ):
        if response.status_code != 200:
            response.read()
            raise refusal(response)
        bar = progress.add_task(escape(harmless(body["model"])), total=1.0)
        for frame in frames_of(response.iter_bytes()):
            event = payload_of(frame, response)
            if message := message_of(event):
                raise LoadError(message)
            if event.get("object") == "model":
                return event
            with understood("POST /v1/models/load"):
                stage = escape(harmless(f"{body['model']}: {event['stage']}"))
                progress.update(bar, completed=float(event["progress"]), description=stage)
    raise UnfitServer("the server went away; a load goes on without its client")


def _print_state(card: dict[str, Any]) -> None:
    print(on_stdout(f"{card.get('id', '')} {card.get('status', '')}"))


def _row(card: dict[str, Any]) -> tuple[str, ...]:
    context, family = (str(card.get(name) or "") for name in ("context_length", "family"))
    return str(card["id"]), _state(card), _size(card), context, family, _fit(card)


def _state(card: dict[str, Any]) -> str:
    state = str(card.get("status", ""))
    if card.get("loads_on_request"):
        state += ", loads on request"
    return f"{state}: {card['error']}" if card.get("error") else state


def _size(card: dict[str, Any]) -> str:
    size_bytes = card.get("size_bytes")
    return f"{size_bytes / _MIB:,.0f} MiB" if size_bytes else ""


def _fit(card: dict[str, Any]) -> str:
    """Of a loaded model, and of an adapter, it is no question."""
    if (fits := card.get("fits")) is None:
        return ""
    return "yes" if fits else "no: too little memory"
