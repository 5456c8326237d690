"""`--compile` changes no greedy token, and is refused where it cannot be had."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from random import Random

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests
from tiny_models import build

from streamwell.core.errors import LoadError
from streamwell.engine import compiled
from streamwell.engine.compiled import compiled_halves
from streamwell.models import cache_dir

# PyTorch's compiler imports parts of PyTorch that PyTorch advises against
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def lasting_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of compiled code starts empty, and loading leaves the environment as it was."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "unset"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    return tmp_path / "streamwell" / "inductor"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(os.environ.get("CXX") or "g++"), reason="no C++ compiler")
def test_compiled_layers_give_the_same_tokens(
    tmp_path: Path, lasting_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a crowd, with preemption; no step compiles anything, and the code is kept on disk."""
    # else it compiles a program for each instruction set first, which takes longer than the model
    monkeypatch.setattr(importlib.import_module("torch._inductor.config").cpp, "vec_isa_ok", True)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # that import may have set it
    folder = build("gemma3", tmp_path)  # it has layers of two kinds
    requests = make_requests(300)
    eager = EngineRig(load_model(folder, "torch"), pool_tokens=80, budget=11)
    model = load_model(folder, compile_layers=True)
    crowded = EngineRig(model, pool_tokens=80, budget=11)

    with torch.compiler.set_stance("fail_on_recompile"):
        outcomes = crowded.serve(requests, arrivals=Random(1))

    assert "torch" == model.info.implementation
    assert eager.serve(requests) == outcomes
    assert any(lasting_folder.iterdir())


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the flag, and what is missing."""
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(LoadError, match=r"--compile .* no-such-compiler"):
        compiled_halves(CPU)


def test_a_compiler_that_fails_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while compiling, loading says that it was `--compile`."""

    class Broken:
        device = CPU

        def forward(self, *arguments: object) -> torch.Tensor:
            raise RuntimeError("no headers")

    with pytest.raises(LoadError, match=r"--compile .*no headers"):
        compiled.warm_up(Broken())  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model_impl"),
    [("opt", "auto"), ("mixtral", "auto"), ("llama", "native"), ("llama", "transformers")],
)
def test_only_our_pytorch_code_is_compiled(tmp_path: Path, name: str, model_impl: str) -> None:
    """Other code is refused when it turns out that it would run the model."""
    with pytest.raises(LoadError, match="--compile"):
        load_model(build(name, tmp_path), model_impl, compile_layers=True)


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, lasting_folder: Path) -> None:
    """It follows the platform, unless Inductor's own variable is set."""
    chosen = lasting_folder.parent / "mine"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(chosen))
    compiled_halves(CPU)

    assert lasting_folder == cache_dir("inductor")
    assert str(chosen) == os.environ["TORCHINDUCTOR_CACHE_DIR"]
