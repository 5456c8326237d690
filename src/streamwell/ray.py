"""What Ray Serve is told to run: `serve run streamwell.ray:app model=brooklet`.

The settings are those of `streamwell serve`, by the names of their flags or from the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.config import Env
from ray import serve

from streamwell.models.resolve import named_models
from streamwell.settings import Settings, refuse_blank_keys
from streamwell.wiring.ray_cluster import application


def app(args: Mapping[str, Any]) -> serve.Application:
    """The application, from the arguments of `serve run` or a Serve config.

    Host and port are Ray's there: those given here count only for what is refused without a key.

    Raises:
        InvalidRequest: a setting is wrong.
        SystemExit: there is no such setting, or it is of another type; the reason is printed.
    """
    parser = App(config=Env("STREAMWELL_", command=False), result_action="return_value")
    parser.default(_application)
    built: serve.Application = parser(list(_tokens(args)))
    return built


def _application(
    *,
    model: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    settings: Annotated[Settings, Parameter(name="*")] = Settings(),  # noqa: B008 - frozen
) -> serve.Application:
    refuse_blank_keys(settings)
    named = named_models(model or settings.default_models)
    return application(replace(settings, ray=True), named)


def _tokens(args: Mapping[str, Any]) -> Iterator[str]:
    """Arguments as the command line has them; a list is a flag that is repeated."""
    for name, value in args.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            yield f"--{name.replace('_', '-')}={item}"
