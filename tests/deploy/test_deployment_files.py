"""What `deploy/` holds: sound by the linters' and the schemas' word, and the command in it runs."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import free_port

from streamwell.cli.compat import VARIABLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "docker-compose.yaml"
BASE = DEPLOY / "kubernetes" / "base"
BIN = Path(sys.executable).parent
DEADLINE_S = 120


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - subprocess's own
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options
    )


def instructions(name: str) -> list[str]:
    """What follows this instruction in the Dockerfile's last stage, lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text(encoding="utf-8"))
    last_stage = text.rpartition("\nFROM ")[2]
    return re.findall(rf"^{name}\s+(.*)$", last_stage, re.MULTILINE)


def image_environment() -> dict[str, str]:
    """The variables that the image sets."""
    pairs = " ".join(instructions("ENV")).split()
    return dict(pair.split("=", 1) for pair in pairs)


def test_the_dockerfile_is_sound() -> None:
    """The linter has nothing to say, the server is nobody of weight, and no secret is built in."""
    linted = run(str(BIN / "hadolint"), str(DOCKERFILE))

    assert (0, "") == (linted.returncode, linted.stdout)
    (user,) = instructions("USER")
    assert int(user) > 0
    assert instructions("HEALTHCHECK")
    assert not re.search(r"(?i)(key|token|password|secret)\s*=", DOCKERFILE.read_text("utf-8"))


def test_the_image_takes_only_what_it_needs() -> None:
    """All is left out but what is named, and what is copied is named."""
    first, *lines = (
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)

    assert "*" == first
    assert kept == {name for names in copied for name in names.split()}
    assert all((ROOT / name).exists() for name in kept)


def test_the_compose_file_is_sound() -> None:
    """By the schema of compose files; ports open to this machine only, runs on a volume."""
    checked = run(
        str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE)
    )
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]

    assert 0 == checked.returncode, checked.stdout
    assert {"streamwell", "streamwell-gpu"} == set(services)
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert {"runs:/data", "models:/models"} == set(service["volumes"])
        assert (ROOT / "deploy" / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert service["environment"]["STREAMWELL_API_KEY"].startswith("${STREAMWELL_API_KEY:?")


def test_compose_passes_on_what_is_read_without_a_prefix() -> None:
    """Each variable of the other project, but for the port, which is that of the machine here."""
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    read = {variable.name for variable in VARIABLES} - {"PORT"}

    for service in services.values():
        passed = {name for name, value in service["environment"].items() if value is None}
        assert set() == read - passed


def manifests(*files: Path) -> dict[str, Any]:
    """Objects by kind and name."""
    found = [obj for file in files for obj in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in found}


def test_the_deployment_is_probed_limited_and_confined() -> None:
    """Probes ask what they should, a drain fits, nothing runs as root or writes where it likes."""
    named = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    objects = manifests(*(BASE / name for name in named))
    pod = objects["Deployment/streamwell"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probes = {kind: container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}

    assert {"startup": "/ready", "readiness": "/ready", "liveness": "/live"} == paths
    for probe in probes.values():  # the address of a pod is no name that --allowed-hosts can have
        assert [{"name": "Host", "value": "localhost"}] == probe["httpGet"]["httpHeaders"]
    assert pod["enableServiceLinks"] is False  # its variables would be taken for settings
    assert probes["startup"]["failureThreshold"] * probes["startup"]["periodSeconds"] >= 600
    assert pod["terminationGracePeriodSeconds"] > 5 + 30  # preStop, and the default of --drain-s
    assert pod["securityContext"]["runAsNonRoot"]
    assert str(pod["securityContext"]["runAsUser"]) == instructions("USER")[0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {"requests", "limits"} == set(container["resources"])
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {n.partition("/")[2] for n in objects if n.startswith("PersistentVolumeClaim")}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def guide(program: str) -> list[list[str]]:
    """Words of the guide's commands that have this program in them, without comments.

    Those of its tables and sentences, which nobody runs, are among them.
    """
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    lines += re.findall(r"`([^`\n]+)`", text)
    return [
        shlex.split(line, comments=True) for line in lines if f"{program} " in line and " -" in line
    ]


def values(flag: str, words: list[str]) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if flag == name]


def test_the_guide_gives_docker_what_it_finds() -> None:
    """Files and build arguments; ports and volumes of the image."""
    arguments = re.findall(r"^ARG (\w+)=", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    volumes, ports = {*json.loads(instructions("VOLUME")[0])}, {*instructions("EXPOSE")}
    commands = guide("docker")

    assert 8 == len(commands)
    for words in commands:
        assert all((ROOT / file).is_file() for file in values("-f", words))
        assert {value.partition("=")[0] for value in values("--build-arg", words)} <= {*arguments}
        assert {value.partition(":")[2] for value in values("-v", words)} <= volumes
        assert {value.rpartition(":")[2] for value in values("-p", words)} <= ports


def test_the_guide_gives_compose_what_it_finds() -> None:
    """Variables that the file reads, services, and the profiles that these are in."""
    text = COMPOSE.read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"]
    for words in (command for command in guide("docker") if "compose" in command):
        variables = [word.partition("=")[0] for word in words[: words.index("docker")]]
        named = words[words.index("--build") + 1 :] if "--build" in words else []

        assert all(re.search(rf"\$\{{{name}\b|^ +{name}:", text, re.M) for name in variables)
        assert all(values("--profile", words) == services[name]["profiles"] for name in named)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
def test_the_guide_makes_the_secret_that_the_deployment_asks_for() -> None:
    """Its name and its key; what is applied after it is there."""
    create, apply = guide("kubectl")
    made = run(*create, "--dry-run=client", "--output=json")
    secret = json.loads(made.stdout)
    pod = manifests(BASE / "deployment.yaml")["Deployment/streamwell"]["spec"]["template"]["spec"]
    (asked,) = (
        variable["valueFrom"]["secretKeyRef"]
        for variable in pod["containers"][0]["env"]
        if "valueFrom" in variable
    )

    assert {"name": secret["metadata"]["name"], "key": next(iter(secret["data"]))} == asked
    assert all((ROOT / folder / "kustomization.yaml").is_file() for folder in values("-k", apply))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
@pytest.mark.parametrize(("folder", "gpus"), [("base", None), ("overlays/gpu", "1")])
def test_kustomize_renders(folder: str, gpus: str | None) -> None:
    """Base and overlay make the objects; the overlay alone asks for a GPU."""
    rendered = run("kubectl", "kustomize", str(DEPLOY / "kubernetes" / folder))
    assert 0 == rendered.returncode, rendered.stderr
    objects = {obj["kind"]: obj for obj in yaml.safe_load_all(rendered.stdout)}

    assert {"Deployment", "Service", "PersistentVolumeClaim"} == set(objects)
    spec = objects["Deployment"]["spec"]
    assert objects["Service"]["spec"]["selector"] == spec["selector"]["matchLabels"]
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert gpus == limits.get("nvidia.com/gpu")


def image_command(environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """What the image runs, by this interpreter, and all of its environment."""
    entry = json.loads(instructions("ENTRYPOINT")[0]) + json.loads(instructions("CMD")[0])
    assert "streamwell" == entry[0]
    ours = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.defpath}
    kept = {k: v for k, v in image_environment().items() if k.startswith("STREAMWELL_")}
    return [sys.executable, "-m", "streamwell", *entry[1:]], {**ours, **kept, **environment}


@pytest.mark.slow
def test_the_image_does_not_open_without_a_key(tmp_path: Path) -> None:
    """It listens beyond loopback, so it says what is missing, and ends."""
    command, environment = image_command({"STREAMWELL_DATA_DIR": str(tmp_path)})
    done = run(*command, env=environment)

    assert 2 == done.returncode
    assert "--api-key" in done.stderr


@pytest.mark.slow
def test_the_images_command_answers(tmp_path: Path) -> None:
    """In an environment that has nothing else; the image's own health check says so."""
    given = {
        "STREAMWELL_PORT": str(free_port()),
        "STREAMWELL_API_KEY": "sk-test",
        "HOME": str(tmp_path),
    }
    given |= {"STREAMWELL_DATA_DIR": str(tmp_path), "STREAMWELL_HOST": "127.0.0.1"}
    given |= {"STREAMWELL_COMPAT": "transformers-openai-api", "HF_MODEL": "brooklet-t5"}
    command, environment = image_command(given | {"STREAMWELL_ENGINE": "scripted"})
    check = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
    assert "python" == check[0]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while run(sys.executable, *check[1:], env=environment).returncode:
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline_s
        assert "model  brooklet-t5" in (tmp_path / "log").read_text()
    finally:
        server.terminate()
        server.wait(DEADLINE_S)
