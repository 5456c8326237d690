"""`docs/reference/settings.md` and `commands.md`, from what the command line itself parses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from cyclopts import App, Argument
from cyclopts.validators import Number

from streamwell.cli import app
from tools.reference import NOTICE, table

SETTINGS_INTRO = """\
# Settings

Every flag of `streamwell serve` is an environment variable too. A flag wins over its variable,
and both win over the default. A flag that can be given several times takes its values from the
variable split at spaces (`STREAMWELL_API_KEY="one two"`). What is on or off is switched off by
`--no-…`, or by `false` in the variable. Values out of their range, and settings that do not go
together, end the start with a line that names the flag."""

OTHER_VARIABLES = (
    (
        "`HF_TOKEN`, `HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_HUB_ETAG_TIMEOUT`",
        "read by the hub's own library: [models from the hub](../models.md#from-the-hub)",
    ),
    ("`XDG_DATA_HOME`", "where the folder of runs and chats is; `~/.local/share` by default"),
    ("`XDG_CACHE_HOME`", "where what can be made again is; `~/.cache` by default"),
    (
        "`TORCHINDUCTOR_CACHE_DIR`",
        "where what `--compile` made is; `streamwell/inductor` in the cache folder by default",
    ),
    (
        "`GOMP_SPINCOUNT`",
        "how long compute threads spin: [operations](../operations.md#what-runs-the-model)",
    ),
    ("`RAY_ADDRESS`", "the cluster of `--ray`: [Ray Serve](../ray.md)"),
    (
        "`HF_MODEL`, `PORT`, `MAX_CONCURRENT`, …",
        "read under `--compat` only: [the list](../compat.md#environment)",
    ),
)

COMMANDS_INTRO = """\
# Commands

`streamwell --help`, and `--help` after each command, show the same. Every flag is an environment
variable too. The exit code is 0 after a good end; what else it says, and how the commands are
used, is told in [the terminal](../terminal.md). [`streamwell serve`](settings.md) has a page of
its own."""


def settings_page() -> str:
    """Every flag of `streamwell serve` with its variable, its default and its range."""
    positional = "`MODEL …`<br>`STREAMWELL_MODELS`"
    rows = [
        (
            positional if argument.name == "MODELS" else _flags(argument),
            *_default_and_help(argument),
        )
        for argument in _arguments(app["serve"])
    ]
    flags = table(("flag, variable", "default", "what it says"), rows)
    others = "## Other variables\n\n" + table(("variable", "what it says"), OTHER_VARIABLES)
    return "\n\n".join((SETTINGS_INTRO, NOTICE, flags, others)) + "\n"


def commands_page() -> str:
    """Every other command with its flags."""
    parts = [COMMANDS_INTRO, NOTICE]
    for command in _commands(app, "streamwell"):
        parts.extend(command)
    return "\n\n".join(parts) + "\n"


def _commands(parent: App, path: str) -> Iterator[list[str]]:
    for name in parent:
        if name.startswith("-") or name == "serve":
            continue
        command = parent[name]
        if command.default_command is not None:
            yield _command(command, f"{path} {name}")
        yield from _commands(command, f"{path} {name}")


def _command(command: App, path: str) -> list[str]:
    rows = [(_flags(one), *_default_and_help(one)) for one in _arguments(command)]
    parts = [f"## `{path}`", command.help.split("\n\n")[0]]
    return [*parts, table(("flag, variable", "default", "what it says"), rows)] if rows else parts


def _arguments(command: App) -> list[Argument]:
    collection = command.assemble_argument_collection(parse_docstring=True)
    return [argument for argument in collection if argument.parse and argument.name != "*"]


def _flags(argument: Argument) -> str:
    variable = argument.name.strip("-").replace("-", "_").upper()
    if argument.index is not None:
        return _flag_names(argument)  # places have names in the environment that nobody would guess
    return f"{_flag_names(argument)}<br>`STREAMWELL_{variable}`"


def _flag_names(argument: Argument) -> str:
    """The names that switch it on; all switches go off with `--no-`."""
    names = [name for name in argument.names if name not in argument.negatives]
    if argument.index is not None:
        names = [argument.names[0].strip("-").upper()]
    return ", ".join(f"`{name}`" for name in names)


def _default_and_help(argument: Argument) -> tuple[str, str]:
    default = argument.field_info.default
    if isinstance(default, bool):
        default = "on" if default else "off"
    shown = "" if default in (None, (), "", argument.field_info.empty) else f"`{default}`"
    says = (argument.parameter.help or "").strip()
    return shown, " ".join(part for part in (says, _range(argument)) if part)


def _range(argument: Argument) -> str:
    choices = _choices(argument.hint)
    if choices:
        return "One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    bounds = [one for one in argument.parameter.validator if isinstance(one, Number)]
    return " ".join(map(_bounds, bounds))


def _choices(hint: Any) -> tuple[str, ...]:  # noqa: ANN401 - any type of a field
    arguments = get_args(hint)
    if arguments and all(isinstance(one, str) for one in arguments):
        return arguments
    return next((found for one in arguments if (found := _choices(one))), ())


def _bounds(number: Number) -> str:
    words = [
        (number.gte, "from {}"),
        (number.gt, "above {}"),
        (number.lte, "to {}"),
        (number.lt, "below {}"),
    ]
    said = " ".join(word.format(bound) for bound, word in words if bound is not None)
    return f"{said.capitalize()}."
