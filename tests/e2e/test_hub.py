"""Models by their names on the hub: downloaded, from the cache, or refused with what to do."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub_stand_in import MAIN, OTHER, Hub, Repository, files_of, serving
from tiny_gguf import write_gguf

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys
from streamwell.core.errors import LoadError
from streamwell.models.resolve import resolve
for arguments in json.loads(sys.argv[1]):
    try:
        folder = resolve(*arguments[:2], with_code="with code" in arguments)
        print(json.dumps([str(folder), None]))
    except LoadError as error:
        print(json.dumps([None, str(error)]))
"""
_UNWANTED = {
    "pytorch_model.bin": b"never",
    "consolidated.safetensors": b"never",
    "original/model.safetensors": b"never",
    "modeling_own.py": b"never, unless it is trusted",
    "README.md": b"never",
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = files_of(brooklet_path())
    changed = files | {"config.json": files["config.json"].replace(b"4096", b"1024")}
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
        self, *models: tuple[str, ...], url: str, **environment: str
    ) -> list[tuple[Path | None, str]]:
        """Names, some with a revision, in one process: folders, or what is said instead.

        The environment is read when a process starts.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        settings = {"HF_HOME": str(self.cache), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(models)],
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
    """No pickles, no weights of other layouts; the token is sent, and opens what is gated."""
    hub.token = "secret"

    (first, _), (second, _), (gated, _) = machine.resolve(
        ("org/tiny",), ("org/tiny",), ("org/gated",), url=hub.url, HF_TOKEN="secret"
    )

    assert first is not None
    assert first == second
    fetched = hub.fetched("org/tiny")
    assert {file.name for file in first.iterdir()} == set(fetched)
    assert len(set(fetched)) == len(fetched)
    assert "model.safetensors" in fetched
    assert not set(fetched) & {Path(name).name for name in _UNWANTED} - {"model.safetensors"}
    assert not (first / "original").exists()
    assert {"Bearer secret"} == {sent for _, path, sent in hub.requests if "org/" in path}
    assert 4096 == context_of(gated)


def test_code_is_fetched_where_it_is_trusted(hub: Hub, machine: Machine) -> None:
    """And nothing else that is not wanted."""
    ((folder, _),) = machine.resolve(("org/tiny", "main", "with code"), url=hub.url)

    assert folder is not None
    there = {str(file.relative_to(folder)) for file in folder.rglob("*")}
    assert {"modeling_own.py"} == there & set(_UNWANTED)


def test_a_revision_is_another_model_and_is_there_without_the_hub(
    hub: Hub, machine: Machine
) -> None:
    """A branch and a commit give what they stand for, also offline, by choice or by chance.

    What is not there is said with where it was looked for, why the hub was not asked, and how to
    get it.
    """
    main, branch, commit, wrong = machine.resolve(
        ("org/tiny",), ("org/tiny", "other"), ("org/tiny", OTHER), ("org/tiny", "third"),
        url=hub.url,
    )  # fmt: skip
    nowhere = "http://127.0.0.1:1"
    asked = (("org/tiny", "other"), ("org/tiny", "third"), ("org/more",))
    by_choice = machine.resolve(*asked, url=nowhere, HF_HUB_OFFLINE="1")
    by_chance = machine.resolve(*asked, url=nowhere)

    assert [4096, 1024, 1024] == [context_of(folder) for folder, _ in (main, branch, commit)]
    assert "has no such revision" in wrong[1]
    for answers, why in (
        (by_choice, "set offline (HF_HUB_OFFLINE)"),
        (by_chance, f"{nowhere} cannot be reached"),
    ):
        assert 1024 == context_of(answers[0][0])
        for (_, refusal), model in zip(
            answers[1:], ("org/tiny --revision third", "org/more"), strict=True
        ):
            assert f"'{model.split()[0]}'" in refusal
            assert str(machine.cache / "hub") in refusal
            assert why in refusal
            assert f"`hf download {model} --local-dir FOLDER`" in refusal


def test_a_hub_that_says_nothing_is_not_waited_for(machine: Machine) -> None:
    """A network that swallows everything is noticed in the time that is set, not in minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start_s = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ((_, refusal),) = machine.resolve(("org/tiny",), url=url, HF_HUB_ETAG_TIMEOUT="1")

    assert f"{url} gave no answer within 1 s" in refusal
    assert time.monotonic() - start_s < 30


def test_all_parts_of_a_gguf_file_are_downloaded(
    hub: Hub, machine: Machine, tmp_path: Path
) -> None:
    """Whichever of them is named; later they are found in the cache."""
    first = write_gguf(brooklet_path(), tmp_path / "parts" / "b.gguf", part_tensors=30)
    parts = files_of(first.parent)
    hub.repositories["org/parts"] = Repository({MAIN: parts | {"a.gguf": b"never"}})
    cache = {"XDG_CACHE_HOME": str(tmp_path)}

    (made, _), (_, refusal) = machine.resolve(
        (f"org/parts:{max(parts)}",), ("org/parts",), url=hub.url, **cache
    )

    assert sorted(parts) == sorted(hub.fetched("org/parts"))
    assert f"there are a.gguf, {first.name}" in refusal
    [(again, _)] = machine.resolve(
        (f"org/parts:{first.name}",), url=hub.url, HF_HUB_OFFLINE="1", **cache
    )
    assert made is not None
    assert made == again


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

    answers = machine.resolve(*((name,) for name in REFUSED), url=hub.url, **environment)

    for (folder, refusal), patterns in zip(answers, REFUSED.values(), strict=True):
        assert folder is None
        assert re.search(patterns[bool(token)], refusal), refusal
