"""When the native helper runs an encoder-decoder, and what happens where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests
from safetensors.torch import load_file, save_file
from tiny_seq2seq import build

from streamwell.core.errors import LoadError
from streamwell.core.types import SamplingParams
from streamwell.engine.loader import LoadedModel
from streamwell.engine.native import BLOCK_SIZE, library
from streamwell.engine.quantization import rounded
from streamwell.engine.seq2seq.native_model import NativeSeq2Seq
from streamwell.engine.sequence import Chunk, Sequence

pytestmark = pytest.mark.slow

NATIVE = f"native/{library.instruction_sets()[0]}"


def load_auto(folder: Path, quantization: str = "none") -> LoadedModel:
    """With the cache blocks that the native helper wants, so that it is the first choice."""
    return load_model(folder, "auto", quantization, block_size=BLOCK_SIZE)


@torch.inference_mode()
def logits_of(loaded: LoadedModel) -> torch.Tensor:
    """`[20, vocab_size]` of an answer to an input."""
    ids = torch.randint(3, 299, (50,), generator=torch.Generator().manual_seed(5)).tolist()
    seq = Sequence("", ids[:20], SamplingParams(max_tokens=1), encoder_ids=tuple(ids[20:]))
    seq.block_ids, seq.cross_block_ids = [4, 2], [3, 1]
    return loaded.runner.model.forward([Chunk(seq, 0, 20)], list(range(20))).clone()


@pytest.mark.parametrize(
    ("name", "model_impl", "quantization", "expected"),
    [
        ("flan-t5", "auto", "none", (NATIVE, "none")),
        ("bart", "native", "none", (NATIVE, "none")),
        ("bart", "torch", "none", ("torch", "none")),
        ("bart", "auto", "int8", (NATIVE, "int8")),
        ("t5", "auto", "int4", (NATIVE, "int4+int8")),  # the model is 48 wide
        ("t5-odd", "auto", "none", ("torch", "none")),
    ],
)
def test_a_model_says_what_runs_it(
    tmp_path: Path, name: str, model_impl: str, quantization: str, expected: tuple[str, str]
) -> None:
    """The helper where it has the parts, unless PyTorch is asked for; nobody is warned of it."""
    folder = build(name, tmp_path)

    info = load_model(folder, model_impl, quantization, block_size=BLOCK_SIZE).info

    assert expected == (info.implementation, info.quantization)
    assert () == info.warnings


@pytest.mark.parametrize(
    ("name", "model_impl", "quantization", "message"),
    [
        ("t5-odd", "native", "none", "the native helper cannot run this model"),
        ("t5-odd", "auto", "int8", "--quantization int8 needs the native helper"),
        ("t5", "torch", "int8", "--model-impl torch was given"),
    ],
)
def test_what_only_the_helper_can_do_is_refused_without_it(
    tmp_path: Path, name: str, model_impl: str, quantization: str, message: str
) -> None:
    """PyTorch would compute something else than what was asked for."""
    folder = build(name, tmp_path)

    with pytest.raises(LoadError, match=message):
        load_model(folder, model_impl, quantization, block_size=BLOCK_SIZE)


def test_a_broken_helper_is_replaced_by_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is served all the same, and the operator is told that it is slower."""
    folder, requests = build("flan-t5", tmp_path), make_requests(299)[:4]
    expected = EngineRig(load_auto(folder)).serve(requests)

    def fail(*_arguments: object) -> None:
        raise OSError("no such symbol")

    monkeypatch.setattr(NativeSeq2Seq, "forward", fail)
    loaded = load_auto(folder)

    assert "torch" == loaded.info.implementation
    (warning,) = loaded.info.warnings
    assert "PyTorch computes" in warning
    assert expected == EngineRig(loaded).serve(requests)


@pytest.mark.parametrize(("quantization", "least"), [("int8", 0.999), ("int4", 0.99)])
def test_rounded_weights_are_those_that_were_asked_for(
    tmp_path: Path, quantization: str, least: float
) -> None:
    """Logits are near those of PyTorch with the same weights rounded beforehand."""
    folder = build("pegasus", tmp_path / "saved")
    logits = logits_of(load_auto(folder, quantization))
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith((".weight",)) and weight.dim() == 2 and "positions" not in name:
            kind = "int8" if "shared" in name else quantization
            weights[name] = rounded(weight, kind)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    expected = logits_of(load_model(folder, "torch", block_size=BLOCK_SIZE))

    assert torch.nn.functional.cosine_similarity(logits, expected).mean() > least


def test_an_encoder_needs_no_more_room_than_its_longest_step(tmp_path: Path) -> None:
    """What it keeps of its own is used again, and grows only for longer inputs."""
    loaded = load_auto(build("t5", tmp_path))
    model = loaded.runner.model
    assert isinstance(model, NativeSeq2Seq)
    first = logits_of(loaded)
    cache = model._encoder_cache

    again = logits_of(loaded)

    assert torch.equal(first, again)
    assert cache is model._encoder_cache
    # two blocks and nobody's, keys and values of two heads of 16
    assert cache.size == 3 * BLOCK_SIZE * 2 * 2 * 16
