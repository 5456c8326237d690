"""Model folders that mean harm are refused, in words, before they could do any."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import clean_environment
from hostile_folders import HOSTILE, copy_of_brooklet, make

pytestmark = pytest.mark.slow

#: Importing torch and Transformers takes half of it.
MAX_RSS_MIB = 2048
#: Twice what a loop without an end is given, and what else loading takes.
MAX_CPU_S = 20.0


@dataclass(frozen=True)
class Report:
    """What came of a load."""

    refusal: str | None
    max_rss_mib: float
    cpu_s: float


class LoadingProcess:
    """Loads folders one after the other, and is not us."""

    def __init__(self, cache: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("hostile_loads.py"))]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=clean_environment() | {"HF_MODULES_CACHE": str(cache)},
        )
        self._cpu_s = 0.0

    def load(
        self, folder: Path, model_impl: str | None, *, trust_remote_code: bool = False
    ) -> Report:
        """With CPU time since the load before; fails if the process does not survive."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"folder": str(folder), "model_impl": model_impl}
        self._process.stdin.write(
            json.dumps(order | {"trust_remote_code": trust_remote_code}) + "\n"
        )
        self._process.stdin.flush()
        for line in self._process.stdout:  # Transformers prints as well
            if line.startswith('{"refusal"'):
                report = Report(**json.loads(line))
                cpu_s, self._cpu_s = report.cpu_s - self._cpu_s, report.cpu_s
                return Report(report.refusal, report.max_rss_mib, cpu_s)
        pytest.fail(f"the process ended with {self._process.wait()}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadingProcess]:
    process = LoadingProcess(tmp_path_factory.mktemp("modules"))
    yield process
    process.close()


CASES = [
    (name, model_impl)
    for name, hostile in HOSTILE.items()
    for model_impl in (hostile.model_impls if hostile.seen_by == "engine" else (None,))
]


@pytest.mark.parametrize(("name", "model_impl"), CASES)
def test_it_is_refused(
    tmp_path: Path, loading: LoadingProcess, name: str, model_impl: str | None
) -> None:
    """The reason is told, no code of the folder runs, and neither time nor memory is wasted."""
    canary = make(name, tmp_path / "model")

    report = loading.load(tmp_path / "model", model_impl)

    assert report.refusal is not None, "it was loaded"
    assert re.search(HOSTILE[name].says, report.refusal), report.refusal
    assert len(report.refusal) < 1000
    assert not canary.exists()
    assert report.max_rss_mib < MAX_RSS_MIB
    assert report.cpu_s < MAX_CPU_S


@pytest.mark.parametrize("model_impl", ["auto", "transformers", None])
def test_links_are_no_harm(tmp_path: Path, loading: LoadingProcess, model_impl: str | None) -> None:
    """The hub's cache is made of links out of the folder: it is loaded like any other."""
    assert loading.load(copy_of_brooklet(tmp_path / "model"), model_impl).refusal is None


@pytest.mark.parametrize("model_impl", ["auto", "transformers"])
def test_code_runs_when_it_is_trusted(
    tmp_path: Path, loading: LoadingProcess, model_impl: str
) -> None:
    """`--trust-remote-code` does what it says: this canary is written, and the model loaded.

    Though it says that it is of a family that our decoders have.
    """
    canary = make("remote_code", tmp_path / "model")
    with (tmp_path / "model" / "modeling_evil.py").open("a") as code:
        code.write("from transformers import LlamaForCausalLM\n")
        code.write("class Evil(LlamaForCausalLM): pass\n")

    report = loading.load(tmp_path / "model", model_impl, trust_remote_code=True)

    assert report.refusal is None
    assert canary.exists()


def test_there_are_enough() -> None:
    """Of every kind: code, paths, configs, weights, tokenizers, templates."""
    assert len(HOSTILE) >= 40
