"""The commands of `docs/deployment.md` on a real engine of Docker; `make test-docker` runs them."""

from __future__ import annotations

import json
import os
import platform
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from ipaddress import ip_network
from typing import Any
from urllib.error import HTTPError

import base_image
import docker_engine
import hub_stand_in
import pytest
from commands import run, serving
from docker_engine import Engine
from guide import ROOT, Block, blocks_run_by
from harness import eventually, free_port
from hub_stand_in import MAIN, Hub, Repository, files_of

from streamwell.models import built_in_path

BUILD_S = 1200
pytestmark = [pytest.mark.slow, pytest.mark.apart, pytest.mark.timeout(2 * BUILD_S)]

BUILD, RUN, UP, DOWN, UP_AS_ANOTHER = blocks_run_by(__file__)
#: Of images, volumes and projects: others may use the same engine.
NAME = f"streamwell-guide-{os.getpid()}"
KEY = "sk-of-the-guide"
#: Where the image has its native helper.
NATIVE = "/opt/streamwell/lib/python3*/site-packages/streamwell/engine/native/lib"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Docker's engine, with the image that the Dockerfile starts from; nothing else stays."""
    if reason := docker_engine.missing():
        pytest.skip(reason)
    base = base_image.base_of_the_dockerfile()
    with docker_engine.running() as engine:
        is_made_here = base_image.provide(engine, base, tmp_path_factory.mktemp("base"))
        yield engine
        if is_made_here:
            engine("image", "rm", base)


@pytest.fixture
def image(engine: Engine) -> Iterator[str]:
    """The image as it is built, with a name of its own; what came of it goes in the end."""
    code = BUILD.code.replace("-t streamwell", f"-t {NAME}")
    run(BUILD, code, ROOT, engine.settings, BUILD_S)
    yield NAME
    for container in engine("ps", "-aq", "--filter", f"ancestor={NAME}").split():
        engine("rm", "--force", container)
    for volume in engine("volume", "ls", "-q", "--filter", f"name={NAME}").split():
        engine("volume", "rm", volume)
    engine("image", "rm", NAME)


@pytest.fixture
def project(engine: Engine) -> Iterator[dict[str, str]]:
    """The environment for Compose, with a name of its own; what it made goes in the end."""
    settings = {**engine.settings, "COMPOSE_PROJECT_NAME": NAME, "PORT": str(free_port())}
    yield settings
    composed(settings, "down --volumes --rmi local")
    assert "" == engine("volume", "ls", "-q", "--filter", f"name={NAME}")


def composed(settings: Mapping[str, str], command: str) -> None:
    """Run the page's `down`, or another command in its place."""
    run(DOWN, re.sub(r"down$", command, typed(DOWN)), ROOT, settings)


def typed(block: Block) -> str:
    return block.code.strip().replace("…", KEY)


def started(block: Block, settings: Mapping[str, str], port: int) -> AbstractContextManager[str]:
    """A block that serves until it gets SIGTERM, with names and a port of the tests' own."""
    code = re.sub(r"streamwell$", NAME, typed(block))
    code = re.sub(r"(?<=-v )(?=\w+:)", f"{NAME}-", code)
    code = code.replace(":8000:8000", f":{port}:8000").replace("PORT=7088", f"PORT={port}")
    return serving(["bash", "-euc", code], ROOT, port, settings, BUILD_S)


def asked(url: str, body: Mapping[str, object] | None = None, key: str = "") -> dict[str, object]:
    """The answer to a GET, or to a POST of this body."""
    headers = {"content-type": "application/json"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as response:
        answer: dict[str, object] = json.load(response)
        return answer


def state_of(engine: Engine, container: str) -> dict[str, Any]:
    """What the engine knows of a container: whether it runs, how it ended, its health."""
    state: dict[str, Any] = json.loads(engine("inspect", "-f", "{{json .State}}", container))
    return state


def check_end(engine: Engine, container: str) -> None:
    """It has ended by itself, and well, after it was asked to."""
    eventually(lambda: not state_of(engine, container)["Running"], "a container's end")
    assert 0 == state_of(engine, container)["ExitCode"], engine("logs", container)


def test_container_answers_those_who_have_its_key(engine: Engine, image: str) -> None:
    """As nobody of weight, healthy by its own check; it drains, and its volumes stay."""
    port = free_port()
    with started(RUN, engine.settings, port) as address:
        container = engine("ps", "-q", "--filter", f"ancestor={image}")
        with pytest.raises(HTTPError, match="401"):
            asked(f"{address}/v1/completions", {"prompt": "Who are you?"})
        assert asked(f"{address}/v1/completions", {"prompt": "Who are you?"}, KEY)["choices"]
        assert "10001" == engine("exec", container, "id", "-u")
        assert "streamwell.db" in engine("exec", container, "ls", "/data")
        if platform.machine() == "x86_64":
            assert "kernels_amx.so" in engine("exec", container, "sh", "-c", f"ls {NATIVE}")
        eventually(lambda: "healthy" == state_of(engine, container)["Health"]["Status"], "health")

    check_end(engine, container)
    assert engine.can("volume", "inspect", f"{NAME}-runs", f"{NAME}-models")


def test_compose_keeps_runs_over_a_restart(engine: Engine, project: dict[str, str]) -> None:
    """What was answered is there after `down` and `up`; the image's files cannot be written."""
    port = int(project["PORT"])
    with started(UP, project, port) as address:
        container = engine("ps", "--quiet", "--filter", f"name={NAME}")
        answer = asked(f"{address}/v1/completions", {"prompt": "Who are you?"}, KEY)
        # root neither
        assert not engine.can("exec", "-u", "0", container, "touch", "/opt/streamwell/file")
        assert engine.can("exec", container, "touch", "/tmp/file", "/data/file", "/models/file")
        # not by a signal here, which `up` would get twice, and kill at the second
        composed(project, "stop")
        check_end(engine, container)
    composed(project, "down")
    assert not engine.can("inspect", container)

    with started(UP, project, port) as address:
        kept = asked(f"{address}/v1/runs/{answer['id']}", key=KEY)
        composed(project, "stop")
    assert "completed" == kept["status"]


def test_compose_stands_in_for_another_project(engine: Engine, project: dict[str, str]) -> None:
    """Its variables reach the server, the model of the hub too, and its clients' key is a dash."""
    model = Repository({MAIN: files_of(built_in_path("brooklet-t5"))})
    # this machine as containers see it
    subnet = engine("network", "inspect", "bridge", "-f", "{{(index .IPAM.Config 0).Subnet}}")
    host = str(ip_network(subnet)[1])
    with hub_stand_in.serving(Hub({"google/flan-t5-base": model}), host) as hub:
        settings = project | {"HF_ENDPOINT": hub.url}
        with started(UP_AS_ANOTHER, settings, int(project["PORT"])) as address:
            body = {
                "model": "model",
                "messages": [{"role": "user", "content": "Write 4027 in words"}],
            }
            answer = asked(f"{address}/chat/completions", body, "-")
            composed(settings, "stop")

    assert answer["choices"]
    assert "model.safetensors" in hub.fetched("google/flan-t5-base")
