"""The commands of `docs/deployment.md` for a cluster; `make test-kubernetes` runs them.

On an API server of Kubernetes: it takes what it is given, or says what is wrong with it. There is
no node, so that no pod is started.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import api_server
import pytest
import yaml
from api_server import kubectl
from commands import run
from guide import ROOT, blocks_run_by

pytestmark = [
    pytest.mark.slow,
    pytest.mark.apart,
    pytest.mark.skipif(bool(api_server.missing()), reason=f"missing: {api_server.missing()}"),
]

(BLOCK,) = blocks_run_by(__file__)
KEY = "sk-of-the-guide"


@pytest.fixture(scope="module")
def config() -> Iterator[Path]:
    with api_server.running() as config:
        yield config


@pytest.mark.parametrize("overlay", ["base", "overlays/gpu"])
def test_a_cluster_takes_what_the_guide_gives(config: Path, overlay: str) -> None:
    """The secret and all objects, as they were written: the server leaves nothing out."""
    kubectl(config, "delete", "--ignore-not-found", "secret", "streamwell-api-key")
    code = BLOCK.code.replace("…", KEY).replace("kubernetes/base", f"kubernetes/{overlay}")
    run(BLOCK, code, ROOT, {"KUBECONFIG": str(config)})

    secret = json.loads(kubectl(config, "get", "secret", "streamwell-api-key", "-o", "json"))
    assert KEY == b64decode(secret["data"]["key"]).decode()
    written = kubectl(config, "kustomize", str(ROOT / "deploy" / "kubernetes" / overlay))
    objects = list(yaml.safe_load_all(written))
    assert {"Deployment", "Service", "PersistentVolumeClaim"} == {one["kind"] for one in objects}
    for one in objects:
        taken = kubectl(config, "get", one["kind"], one["metadata"]["name"], "-o", "json")
        assert holds(json.loads(taken), one), taken


def holds(whole: object, part: object) -> bool:
    """Whether all of a part is there; a server adds what was left to it."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and holds(whole[name], value) for name, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(map(holds, whole, part))
    return whole == part
