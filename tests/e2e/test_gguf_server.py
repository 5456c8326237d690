"""A server of a GGUF file is a server of the model in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import ServerProcess
from tiny_gguf import write_gguf

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

CHAT = {"messages": [{"role": "user", "content": "Hello! What is your name?"}], "max_tokens": 20}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the model in the box as a GGUF file, and a cache of its own."""
    place = tmp_path_factory.mktemp("gguf")
    write_gguf(brooklet_path(), place / "b.gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        yield place


def test_it_says_the_same_as_the_folder_it_was_made_from(
    brooklet: ServerProcess, place: Path
) -> None:
    """Weights, tokenizer, chat template and ends of answers: its folder is given, not it."""
    flags = ("--num-threads", "1", "--log-level", "warning", "--served-model-name", "brooklet")
    with closing(ServerProcess(place, str(place), *flags)) as server:
        server.wait_until_ready()
        path = "/v1/chat/completions"
        greedy = CHAT | {"temperature": 0}

        assert brooklet.text(greedy, path) == server.text(greedy, path)


def test_a_damaged_file_ends_the_server_with_the_reason(place: Path) -> None:
    """One line that names the file, and no traceback."""
    damaged = place / "damaged.gguf"
    damaged.write_bytes((place / "b.gguf").read_bytes()[:-1000])
    with closing(ServerProcess(place, str(damaged))) as server:
        assert 2 == server.wait()
        reason = server.log().strip().splitlines()[-1]
        assert "damaged.gguf is truncated" in reason
        assert "Traceback" not in server.log()
    damaged.unlink()
