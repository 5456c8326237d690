"""The server of `make serve`, for the commands of the README and the guide."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

import hub_stand_in
from brooklet_lora import build_brooklet_lora
from commands import serving
from guide import ROOT
from harness import free_port
from hub_stand_in import MAIN, Hub, Repository, files_of

from streamwell.models import BUILT_IN, brooklet_path, built_in_path

#: Models of the hub that the guide serves. Here all of them are the one in the box.
OF_THE_HUB = (
    "HuggingFaceTB/SmolLM2-360M-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-0.5B-Instruct",
)


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`make serve`, as the README has it, on a free port."""
    port = free_port()
    settings = {
        "STREAMWELL_PORT": str(port),
        "STREAMWELL_DATA_DIR": str(tmp_path_factory.mktemp("data")),
    }
    with serving(["make", "serve"], ROOT, port, settings) as address:
        yield address


@pytest.fixture
def hub() -> Iterator[Hub]:
    """What stands in for the hub."""
    model = Repository({MAIN: files_of(brooklet_path())})
    with hub_stand_in.serving(Hub(dict.fromkeys(OF_THE_HUB, model))) as hub:
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the guide takes to be in it."""
    decoder, encoder_decoder = map(built_in_path, BUILT_IN)
    (tmp_path / "my-model").symlink_to(decoder)
    (tmp_path / "base").symlink_to(decoder)
    (tmp_path / "t5-small").symlink_to(encoder_decoder)
    (tmp_path / "models" / "owner").mkdir(parents=True)
    (tmp_path / "models" / "owner" / "name").symlink_to(decoder)
    (tmp_path / "notes.txt").write_text("The river rose by two metres.")
    for adapter in ("polite-adapter", "my-qlora-adapter"):
        build_brooklet_lora(tmp_path / adapter, seed=1)
    return tmp_path
