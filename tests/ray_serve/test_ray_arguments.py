"""What `serve run streamwell.ray:app name=value …` makes of its arguments; needs no cluster."""

from __future__ import annotations

from typing import Any

import pytest

from streamwell.core.errors import InvalidRequest

pytestmark = pytest.mark.slow


def _deployments(**args: Any) -> dict[str, Any]:  # noqa: ANN401 - as YAML has them
    """The deployments of the application, by name."""
    from streamwell.ray import app

    gateway = app(args)._bound_deployment
    engines = [engine._bound_deployment for engine in gateway.init_args[2].values()]
    return {deployment.name: deployment for deployment in (gateway, *engines)}


def test_arguments_are_the_flags_of_serve() -> None:
    """Numbers, lists and flags, as a config file has them or as texts."""
    deployments = _deployments(
        model=["brooklet", "t5=brooklet-t5"],
        ray_gateways="2",
        ray_replicas=3,
        enable_prefix_caching=False,
        durability="disk",
    )
    settings = deployments["Gateway"].init_args[0]

    assert {"Gateway": 2, "Engine-0": 3, "Engine-1": 3} == {
        name: deployment.num_replicas for name, deployment in deployments.items()
    }
    assert {"brooklet": "brooklet", "t5": "brooklet-t5"} == deployments["Gateway"].init_args[1]
    assert (False, "disk") == (settings.enable_prefix_caching, settings.durability)


def test_without_arguments_both_models_in_the_box_are_served() -> None:
    """As by `streamwell serve`."""
    assert ["brooklet", "brooklet-t5"] == list(_deployments()["Gateway"].init_args[1])


def test_the_environment_says_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys do not have to stand in a config file."""
    monkeypatch.setenv("STREAMWELL_API_KEY", "sk-one")

    assert ("sk-one",) == _deployments()["Gateway"].init_args[0].api_key


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"idle_unload_s": 5}, "idle_unload_s"),
        ({"models_dir": "."}, "models_dir"),
        ({"durability": "memory", "ray_gateways": 2}, "durability"),
    ],
)
def test_what_does_not_go_together_with_ray_is_refused(args: dict[str, Any], field: str) -> None:
    """With the name of the field."""
    with pytest.raises(InvalidRequest) as refused:
        _deployments(**args)

    assert field == refused.value.param


@pytest.mark.parametrize("args", [{"no_such_flag": 1}, {"ray_replicas": "two"}])
def test_an_unknown_argument_is_refused(args: dict[str, Any]) -> None:
    """As on the command line."""
    with pytest.raises(SystemExit):
        _deployments(**args)
