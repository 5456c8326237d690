"""A model is tried out before it is served, and says what runs it; a broken helper is not used."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests
from safetensors.torch import load_file, save_file
from tiny_models import build

from streamwell.core.errors import LoadError
from streamwell.engine.loader import LoadedModel
from streamwell.engine.native import BLOCK_SIZE, library
from streamwell.engine.native.decoder import NativeDecoder
from streamwell.engine.native.self_test import passes_self_test

pytestmark = pytest.mark.slow

NATIVE = f"native/{library.instruction_sets()[0]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("llama", tmp_path_factory.mktemp("llama"))


def load_auto(folder: Path, quantization: str = "none") -> LoadedModel:
    """With the cache blocks that the native helper wants, so that it is the first choice."""
    return load_model(folder, "auto", quantization, block_size=BLOCK_SIZE)


class DeafHelper:
    """A helper whose layers compute nothing."""

    def __init__(self, helper: ctypes.CDLL) -> None:
        self._helper = helper

    def sw_linear(self, *_arguments: Any) -> None:  # noqa: ANN401 - as ctypes has it
        """Leave the result as it is."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as ctypes has it
        return getattr(self._helper, name)


def break_in_construction(patch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ctypes.ArgumentError("argument 3: wrong type")

    patch.setattr(NativeDecoder, "__init__", fail)


def break_in_a_step(patch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError("no such symbol")

    patch.setattr(NativeDecoder, "forward", fail)


def compute_wrongly(patch: pytest.MonkeyPatch) -> None:
    helper = library.best()
    assert helper is not None
    deaf = DeafHelper(helper)
    patch.setattr(library, "best", lambda: deaf)


breakages = pytest.mark.parametrize(
    "damage", [break_in_construction, break_in_a_step, compute_wrongly]
)


@breakages
def test_a_broken_helper_is_replaced_by_pytorch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """`auto` serves the model all the same, and the operator is told that it is slower."""
    expected = EngineRig(load_auto(folder)).serve(requests := make_requests(300)[:4])
    damage(monkeypatch)

    model = load_auto(folder)

    assert "torch" == model.info.implementation
    (warning,) = model.info.warnings
    assert "PyTorch computes" in warning
    assert expected == EngineRig(model).serve(requests)


@breakages
def test_a_broken_helper_is_refused_when_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """`--model-impl native` means it."""
    damage(monkeypatch)

    with pytest.raises(LoadError, match="the native helper cannot run this model"):
        load_model(folder, "native")


@pytest.mark.parametrize("name", library.instruction_sets())
def test_a_sound_helper_passes_its_self_test(name: str) -> None:
    """In every instruction set; one that computes nothing does not pass."""
    helper = library.load(name)
    assert helper is not None

    assert passes_self_test(helper)
    assert not passes_self_test(DeafHelper(helper))  # type: ignore[arg-type]


def test_a_helper_from_other_sources_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that lacks a function is not half used."""
    name = library.instruction_sets()[0]
    monkeypatch.setitem(library._SIGNATURES, "sw_no_such_function", (None, []))

    assert library.load(name) is None


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_logits_that_are_not_finite_are_refused(tmp_path: Path, model_impl: str) -> None:
    """A model that could answer nothing is not served; the fields to look at are named."""
    folder = build("llama", tmp_path)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": -10000.0}
    path.write_text(json.dumps(config))

    with pytest.raises(LoadError, match=r"rms_norm_eps .* and rope_theta \(-10000.0\)"):
        load_model(folder, model_impl)


@pytest.mark.parametrize("model_impl", ["native", "torch"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_queries_that_are_not_numbers_are_not_hidden(
    tmp_path: Path, model_impl: str, name: str
) -> None:
    """Neither softmax nor a soft cap before it makes numbers of them."""
    folder = build(name, tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.weight"].fill_(torch.nan)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(LoadError, match="not finite"):
        load_model(folder, model_impl)


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_scores_that_are_infinite_are_not_hidden(tmp_path: Path, model_impl: str) -> None:
    """Softmax makes no even weights of them."""
    folder = build("gpt2", tmp_path)
    weights = load_file(folder / "model.safetensors")
    bias = weights["transformer.h.0.attn.c_attn.bias"]
    bias[5], bias[len(bias) // 3 + 5] = 1000.0, torch.inf  # of a query, and of its key
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(LoadError, match="not finite"):
        load_model(folder, model_impl)


@pytest.mark.parametrize("model_impl", ["native", "torch"])
@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe"])
@pytest.mark.parametrize("expert", [0, 2])
def test_experts_whose_score_is_not_a_number_are_not_passed_over(
    tmp_path: Path, model_impl: str, name: str, expert: int
) -> None:
    """No expert would be chosen with such a score, and the others would answer alone."""
    folder = build(name, tmp_path)
    weights = load_file(folder / "model.safetensors")
    (router, *_others) = (key for key in weights if key.endswith(".gate.weight"))
    weights[router][expert, 0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(LoadError, match="not finite"):
        load_model(folder, model_impl)


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_one_damaged_embedding_is_no_reason_to_refuse(tmp_path: Path, model_impl: str) -> None:
    """The other tokens can be served; a request with that one fails alone."""
    folder = build("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    assert load_model(folder, model_impl).info.vocab_size


def test_the_try_out_leaves_nothing_in_the_cache(folder: Path) -> None:
    """The cache has its full size, and every block is as if nobody had ever used it."""
    loaded = load_model(folder, "native")
    model = loaded.runner.model
    assert isinstance(model, NativeDecoder)

    # two heads of 16, keys and values
    floats = (loaded.info.num_blocks + 1) * BLOCK_SIZE * 2 * 2 * 16
    for cache in model.cache:
        assert cache.size == floats
        assert not cache.any()


@pytest.mark.parametrize(
    ("model_impl", "quantization", "expected"),
    [
        ("native", "none", (NATIVE, "none")),
        ("native", "int8", (NATIVE, "int8")),
        ("native", "int4", (NATIVE, "int4")),
        ("torch", "none", ("torch", "none")),
        ("torch", "int4", ("torch", "int4")),
        ("transformers", "none", ("transformers", "none")),
    ],
)
def test_a_model_says_what_runs_it(
    folder: Path, model_impl: str, quantization: str, expected: tuple[str, str]
) -> None:
    """The implementation with its instruction set, and the rounding; slow rounding is warned of."""
    info = load_model(folder, model_impl, quantization).info

    assert expected == (info.implementation, info.quantization)
    is_slow = (model_impl, quantization) == ("torch", "int4")
    assert is_slow == any("--model-impl torch" in text for text in info.warnings)
    assert is_slow == bool(info.warnings)


def test_the_rounding_in_effect_is_told(tmp_path: Path) -> None:
    """Layers whose inputs are no whole groups get eight bits where four were asked for."""
    folder = build("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    for layer in range(2):
        for name, shape in {"gate": (48, 64), "up": (48, 64), "down": (64, 48)}.items():
            weights[f"model.layers.{layer}.mlp.{name}_proj.weight"] = torch.ones(shape) / 100
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    assert "int4+int8" == load_model(folder, "native", "int4").info.quantization
