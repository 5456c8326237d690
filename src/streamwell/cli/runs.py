"""`streamwell runs`: what a server generates now: listed, followed, cancelled."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cyclopts import App

from streamwell.cli.address import HERE, AsJson, At
from streamwell.cli.harmless import harmless, on_stdout
from streamwell.core.errors import EngineDied, InvalidRequest

if TYPE_CHECKING:
    import httpx2

#: As many as a page of the list has.
_MAX_RUNS = 100

app = App(name="runs", help="Look at what a server generates now, follow it, cancel it.")


@app.default
@app.command(name="list")
def list_(*, json: AsJson = False, address: At = HERE) -> None:
    """List the runs that a server has in hand, the newest first, at most 100.

    Parameters
    ----------
    json
        Print JSON, an object per run and line.
    """
    from streamwell.cli.remote import connected, understood

    with connected(address) as client:
        page = _newest(client, limit=_MAX_RUNS)
        with understood("GET /v1/runs"):
            runs, rows = page["data"], list(map(_row, page["data"]))
    _print_json(runs) if json else _print_table(rows)
    if page.get("has_more"):
        print(f"streamwell: there are more; these are the newest {_MAX_RUNS}", file=sys.stderr)


@app.command
def follow(run: str, /, *, json: AsJson = False, address: At = HERE) -> None:
    """Print a run's text as it comes, from its beginning; a lost connection is taken up again.

    Parameters
    ----------
    run
        Id of the run; `last` is the newest one in hand.
    json
        Print the events, an object per line.
    """
    from streamwell.cli.answer_stream import AnswerStream
    from streamwell.cli.remote import connected

    with connected(address) as client:
        try:
            events = AnswerStream.of_run(client, _id_of(client, run))
            _print_json(events) if json else _print_text(events)
        except EngineDied as error:
            sys.exit(f"streamwell: {error}")
        except KeyboardInterrupt:  # the run has other readers, or waits for one
            print()


@app.command
def cancel(*runs: str, address: At = HERE) -> None:
    """End runs, for all of their readers; a wrong id does not spare the others.

    Parameters
    ----------
    runs
        Their ids; `last` is the newest one in hand.
    """
    from streamwell.cli.remote import call, connected

    if not runs:
        raise InvalidRequest("name the runs to cancel, or `last`", "runs")
    is_wrong = False
    with connected(address) as client:
        for run in runs:
            try:
                shown = call(client, "POST", f"/v1/runs/{_id_of(client, run)}/cancel")
            except InvalidRequest as error:
                print(harmless(f"streamwell: {run!r}: {error}"), file=sys.stderr)
                is_wrong = True
            else:
                print(on_stdout(f"{shown.get('id', '')} {shown.get('status', '')}"))
    if is_wrong:
        sys.exit(2)


def _newest(client: httpx2.Client, limit: int) -> dict[str, Any]:
    """A page; there is no second one, for what it would begin after may have ended."""
    from streamwell.cli.remote import call

    return call(client, "GET", "/v1/runs", params={"limit": limit})


def _id_of(client: httpx2.Client, run: str) -> str:
    from streamwell.cli.remote import understood

    if not run:
        raise InvalidRequest("the id of a run is empty", "run")
    if run != "last":
        return quote(run, safe="")
    page = _newest(client, limit=1)
    with understood("GET /v1/runs"):
        ids = [str(entry["id"]) for entry in page["data"]]
    if not ids:
        raise InvalidRequest("the server has no run in hand", "run")
    return ids[0]


def _print_json(entries: Iterable[dict[str, Any]]) -> None:
    for entry in entries:
        print(on_stdout(dumps(entry, ensure_ascii=False)), flush=True)


def _print_text(events: Iterable[dict[str, Any]]) -> None:
    """The text of the first choice on standard output, and what it ended with on the other one."""
    from streamwell.cli.remote import understood

    for event in events:
        if "text" not in event:
            with understood("GET /v1/runs"):
                reasons = event.get("finish_reasons") or [event.get("finish_reason")]
                tokens = (event.get("usage") or {}).get("completion_tokens")
                told = harmless(f"{', '.join(map(str, reasons))}, {tokens} tokens")
            print(flush=True)
            print(f"streamwell: {told}", file=sys.stderr)
        elif not event.get("index"):
            print(on_stdout(str(event["text"])), end="", flush=True)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    from streamwell.cli.tables import print_table

    if not rows:
        print("No run is in hand.")
        return
    print_table(("run", "status", "model", "age", "text"), rows)


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    id_, status, model = (str(run[name]) for name in ("id", "status", "model"))
    return id_, status, model, f"{_age_s(run)} s", _end_of(run)


def _age_s(run: Mapping[str, Any]) -> int:
    return max(0, round(time.time() - float(run["created"])))


def _end_of(run: Mapping[str, Any]) -> str:
    """The last words of the first choice."""
    return " ".join(run["choices"][0]["text"].split())[-40:]
