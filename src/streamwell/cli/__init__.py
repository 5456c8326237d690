"""The command line. Imports little at the top: `--help` must be instant."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.config import Env
from cyclopts.validators import Number

from streamwell import __version__
from streamwell.cli import compat, db, models, runs
from streamwell.cli.address import HERE, AsJson, At
from streamwell.cli.bench.options import BenchOptions
from streamwell.core.errors import StreamwellError
from streamwell.settings import Settings, refuse_blank_keys
from streamwell.settings.converters import WHOLE, whole

#: Nothing, unless it is given.
_Text = Annotated[str, Parameter(show_default=False)]

app = App(
    name="streamwell",
    help="Serves local language models and streams their answers.",
    version=__version__,
    config=(Env("STREAMWELL_", command=False), compat.fill_in),
)
for part in (runs, models, db):
    app.command(part.app)


@app.command
def serve(
    *models: str,
    model: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    settings: Annotated[Settings, Parameter(name="*")] = Settings(),  # noqa: B008 - frozen
) -> None:
    """Serve models over HTTP: an OpenAI-compatible API; runs are logged before they are sent.

    Parameters
    ----------
    models
        `brooklet` or `brooklet-t5` (both built in, the default), a local folder, or the name of a
        model on the Hugging Face hub; `NAME=MODEL` to call it by a name. The first answers
        requests that name none.
    model
        One more model; repeatable.
    """
    from streamwell.cli.serve import run

    refuse_blank_keys(settings)
    run((*models, *model) or settings.default_models, settings)


@app.command
def chat(*, model: _Text = "", system: _Text = "", address: At = HERE) -> None:
    """Talk to a model in the terminal; starts a server if none answers.

    Parameters
    ----------
    model
        Name of the model; default: the first one of the server.
    system
        System prompt.
    """
    from streamwell.cli.chat import run

    run(address, model=model, system=system)


@app.command(name="run")
def run_prompt(
    *prompt: str,
    model: str | None = None,
    system: _Text = "",
    max_tokens: Annotated[int | None, whole(1)] = None,
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0, lte=100))] = None,
    seed: Annotated[int | None, WHOLE] = None,
    address: At = HERE,
) -> None:
    """Print the answer to one prompt, as plain text; what is piped in is added to the prompt.

    Parameters
    ----------
    prompt
        The prompt; several words are one prompt.
    model
        Name of the model; default: the first one of the server.
    system
        System prompt.
    max_tokens
        Longest answer in tokens; default: to the end of the context.
    temperature
        0 always takes the likeliest word; default: the model's own.
    seed
        The same request with the same seed gets the same answer.
    """
    from streamwell.cli.run import run

    options = {"model": model, "max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    run(address, " ".join(prompt), system, options)


@app.command
def bench(
    *,
    options: Annotated[BenchOptions, Parameter(name="*")] = BenchOptions(),  # noqa: B008 - frozen
    address: At = HERE,
) -> None:
    """Put load on an OpenAI-compatible server, and print its latencies and throughput."""
    from streamwell.cli.bench.command import run

    run(address, options)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print what makes a shell complete commands and flags, to be sourced by it.

    Parameters
    ----------
    shell
        As in `source <(streamwell completion bash)`.
    """
    print(app.generate_completion(prog_name="streamwell", shell=shell))


@app.command
def trace(
    file: Path,
    *,
    output: Path | None = None,
    first: Annotated[int, whole(0)] = 0,
    steps: Annotated[int, whole(1, 10_000)] = 120,
) -> None:
    """Draw which request was in which step of the engine, from a file of `serve --trace`.

    Parameters
    ----------
    file
        The trace.
    output
        SVG file to write; default: text on standard output.
    first
        First step to draw.
    steps
        Steps to draw, at most.
    """
    from streamwell.cli.trace import run

    run(file, output, first, steps)


@app.command
def doctor(*, json: AsJson = False) -> None:
    """Print versions, device, memory and folders, and what to do about what is wrong.

    Parameters
    ----------
    json
        Print JSON.
    """
    from streamwell.cli.doctor import run

    run(as_json=json)


def main() -> None:
    """Entry point of the `streamwell` command."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # refused where it is used, by name
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # it may be unable to say what a model says
    try:
        app()
    except StreamwellError as error:
        print(f"streamwell: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # nothing is left to flush at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # whoever reads from a pipe may have had enough, like `head`
        sys.exit(1 if error.errno == errno.EPIPE else f"streamwell: {error.strerror}")
