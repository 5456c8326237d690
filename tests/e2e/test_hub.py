"""Models by their names on the hub: downloaded, from the cache, or refused with what to do."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub_stand_in import MAIN, OTHER, Hub, Repository, files_of, serving

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys
from streamwell.core.errors import LoadError
from streamwell.models.resolve import resolve
for name in sys.argv[2:]:
    try:
        print(json.dumps([str(resolve(name, sys.argv[1] or None)), None]))
    except (FileNotFoundError, LoadError) as error:
        print(json.dumps([None, str(error)]))
"""
_UNWANTED = {
    "pytorch_model.bin": b"never",
    "consolidated.safetensors": b"never",
    "original/model.safetensors": b"never",
    "README.md": b"never",
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = files_of(brooklet_path())
    changed = files | {"config.json": files["config.json"].replace(b"2048", b"1024")}
    repositories = {
        "org/tiny": Repository({MAIN: files | _UNWANTED, OTHER: changed}),
        "org/gated": Repository({MAIN: files}, is_gated=True),
        "org/pickled": Repository({MAIN: {"config.json": b"{}", "pytorch_model.bin": b"x"}}),
        "org/quants": Repository({MAIN: {"a.Q4_0.gguf": b"GGUF", "a.Q8_0.gguf": b"GGUF"}}),
    }
    with serving(Hub(repositories)) as served:
        yield served


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with a cache, somewhere near a hub."""

    cache: Path

    def resolve(
        self, name: str, revision: str = "", *, url: str, **environment: str
    ) -> tuple[Path | None, str]:
        """The folder, or what is said instead."""
        return self.resolve_all([name], revision, url=url, **environment)[0]

    def resolve_all(
        self, names: Sequence[str], revision: str = "", *, url: str, **environment: str
    ) -> list[tuple[Path | None, str]]:
        """The same of several."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        settings = {"HF_HOME": str(self.cache), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, revision, *names],
            env=kept | settings | environment,
            capture_output=True,
            check=True,
            timeout=60,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"[")]
        return [(Path(folder) if folder else None, refusal or "") for folder, refusal in answers]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "cache")


def context_of(folder: Path | None) -> int:
    assert folder is not None
    context: int = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    return context


def test_what_is_needed_is_downloaded_once(hub: Hub, machine: Machine) -> None:
    """No pickles, no weights of other layouts; the second time nothing; the token is sent."""
    first, _ = machine.resolve("org/tiny", url=hub.url, HF_TOKEN="secret")
    fetched, authorizations = hub.fetched(), {r[2] for r in hub.requests if "org/tiny" in r[1]}
    hub.requests.clear()
    second, _ = machine.resolve("org/tiny", url=hub.url)

    assert first is not None
    assert first == second
    assert {file.name for file in first.iterdir()} == fetched
    assert "model.safetensors" in fetched
    assert not fetched & {Path(name).name for name in _UNWANTED} - {"model.safetensors"}
    assert not (first / "original").exists()
    assert {"Bearer secret"} == authorizations
    assert set() == hub.fetched()


def test_a_revision_is_another_model(hub: Hub, machine: Machine) -> None:
    """A branch and a commit give what they stand for; one that is not there is said to be so."""
    assert 2048 == context_of(machine.resolve("org/tiny", url=hub.url)[0])
    assert 1024 == context_of(machine.resolve("org/tiny", "other", url=hub.url)[0])
    assert 1024 == context_of(machine.resolve("org/tiny", OTHER, url=hub.url)[0])
    assert "has no such revision" in machine.resolve("org/tiny", "third", url=hub.url)[1]


def test_without_the_hub_the_cache_is_taken(hub: Hub, machine: Machine) -> None:
    """Offline by choice, or since nobody answers; also a revision."""
    machine.resolve("org/tiny", "other", url=hub.url)
    nowhere = "http://127.0.0.1:1"

    by_choice, _ = machine.resolve("org/tiny", "other", url=nowhere, HF_HUB_OFFLINE="1")
    by_chance, _ = machine.resolve("org/tiny", "other", url=nowhere)

    assert 1024 == context_of(by_choice) == context_of(by_chance)


def test_what_is_not_in_the_cache_is_said_with_what_to_do(machine: Machine) -> None:
    """What was looked for, where, why the hub was not asked, and how to get it."""
    refusals = [
        machine.resolve("org/tiny", url="http://127.0.0.1:1", HF_HUB_OFFLINE="1")[1],
        machine.resolve("org/tiny", "other", url="http://127.0.0.1:1")[1],
    ]

    for refusal in refusals:
        assert "'org/tiny'" in refusal
        assert str(machine.cache / "hub") in refusal
    assert "set offline (HF_HUB_OFFLINE)" in refusals[0]
    assert "`hf download org/tiny --local-dir FOLDER`" in refusals[0]
    assert "http://127.0.0.1:1 cannot be reached" in refusals[1]
    assert "`hf download org/tiny --revision other --local-dir FOLDER`" in refusals[1]


def test_a_hub_that_says_nothing_is_not_waited_for(machine: Machine) -> None:
    """A network that swallows everything is noticed in the time that is set, not in minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start_s = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        _, refusal = machine.resolve("org/tiny", url=url, HF_HUB_ETAG_TIMEOUT="1")

    assert f"{url} gave no answer within 1 s" in refusal
    assert time.monotonic() - start_s < 30


#: Names, what is said to who sends no token, and to who sends a wrong one where that is not it.
REFUSED = {
    "org/gated": (
        r"it is gated: ask for access on its page.* \(none is set\)",
        r"it is gated: ask for access on its page.* \(the one that is set has no access\)",
    ),
    "org/none": (
        r"has no model of this name, or does not show it to who sends no token",
        r"has no model of this name, or does not show it to the token that is set",
    ),
    "org/pickled": ("no safetensors; pytorch_model.bin may be a pickle",) * 2,
    "org/quants": ("name one, as in org/quants:a.Q4_0.gguf",) * 2,
    "org/quants:b.gguf": ("has no b.gguf; its GGUF files: a.Q4_0.gguf, a.Q8_0.gguf",) * 2,
    "org/quants:a.bin": ("names a file that is no GGUF file",) * 2,
    "org/quants:a.Q8_0.gguf": ("a.Q8_0.gguf is truncated",) * 2,  # it was fetched
    "a b/c d": ("there is no folder a b/c d",) * 2,
}


@pytest.mark.parametrize("token", ["", "wrong"])
def test_what_the_hub_does_not_give_is_explained(hub: Hub, machine: Machine, token: str) -> None:
    """A person knows what to do next."""
    environment = {"HF_TOKEN": token} if token else {}

    answers = machine.resolve_all(list(REFUSED), url=hub.url, **environment)

    for (folder, refusal), patterns in zip(answers, REFUSED.values(), strict=True):
        assert folder is None
        assert re.search(patterns[bool(token)], refusal), refusal


def test_gated_models_are_given_to_who_has_access(hub: Hub, machine: Machine) -> None:
    """`HF_TOKEN` opens them."""
    hub.token = "secret"

    assert 2048 == context_of(machine.resolve("org/gated", url=hub.url, HF_TOKEN="secret")[0])
