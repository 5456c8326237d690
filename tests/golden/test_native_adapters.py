"""Adapters on the native helper: right in every instruction set, and each row for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_rig import load_model
from native_rig import last_logits, make_sequences, whole
from tiny_adapters import build_adapters
from tiny_gguf import write_gguf
from tiny_models import build

from streamwell.engine.loader import LoadedModel
from streamwell.engine.native import BLOCK_SIZE, library
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.models.resolve import resolve

pytestmark = pytest.mark.slow

#: Gated and plain layers, norms around both halves, halves side by side.
MODELS = ["llama", "gemma2", "gpt2", "gpt-neox"]


@pytest.fixture
def adapters(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Path]:
    """Three of the model that the test is for, which is in `tmp_path / "model"`."""
    name = request.getfixturevalue("name")
    return build_adapters(name, build(name, tmp_path / "model"), tmp_path)


def load(
    folder: Path,
    adapters: dict[str, Path],
    model_impl: str,
    quantization: str = "none",
    dtype: str = "float32",
) -> LoadedModel:
    """With the adapters as numbers 1, 2 and 3."""
    model = load_model(
        folder, model_impl, quantization, dtype=dtype, block_size=BLOCK_SIZE, enable_lora=True
    )
    assert model.adapters is not None
    for number, (name, path) in enumerate(adapters.items(), start=1):
        model.adapters.add(number, name, str(path))
    return model


def sequences_of(numbers: tuple[int, ...]) -> list[Sequence]:
    """Five prompts, with these adapters in turn."""
    sequences = make_sequences("llama")
    for i, sequence in enumerate(sequences):
        sequence.adapter = numbers[i % len(numbers)]
    return sequences


@pytest.mark.parametrize("name", MODELS)
def test_every_instruction_set_adds_what_pytorch_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapters: dict[str, Path], name: str
) -> None:
    """Logits of a step whose sequences have other adapters each, or none."""
    chunks = [whole(sequence) for sequence in sequences_of((1, 2, 0, 3))]
    reference = load(tmp_path / "model", adapters, "torch").runner.model
    expected = last_logits(reference, chunks)
    for variant in library.instruction_sets():
        helper = library.load(variant)
        assert helper is not None, "the helper is not compiled"
        monkeypatch.setattr(library, "best", lambda it=helper: it)

        logits = last_logits(load(tmp_path / "model", adapters, "native").runner.model, chunks)

        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("name", ["llama"])
@pytest.mark.parametrize("value", ["Q8_0", "F32"])
def test_adapters_of_keys_and_values_apart_from_queries(
    tmp_path: Path, adapters: dict[str, Path], name: str, value: str
) -> None:
    """In a GGUF file where they are of other types; inputs are rounded beside."""
    kinds = {"attn_v": value, "attn_k": value}
    written = write_gguf(tmp_path / "model", tmp_path / f"{name}.gguf", "Q4_0", kinds=kinds)
    file = resolve(str(written))
    chunks = [whole(sequence) for sequence in sequences_of((1, 2, 0, 3))]
    kept = load(file, adapters, "native", "auto")
    floats = load(file, adapters, "torch")

    logits = [last_logits(model.runner.model, chunks) for model in (kept, floats)]

    assert torch.nn.functional.cosine_similarity(*logits).min() > 0.998


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("dtype", "quantization"),
    [("float32", "none"), ("float32", "int8"), ("float32", "int4"), ("bfloat16", "none")],
)
def test_a_token_with_an_adapter_does_not_depend_on_batch_or_chunks(
    tmp_path: Path, adapters: dict[str, Path], name: str, dtype: str, quantization: str
) -> None:
    """Logits of the last token: the same bits alone, in chunks of any size, in any crowd.

    Those without an adapter have the bits of a model that knows none.
    """
    best = library.best()
    if dtype == "bfloat16" and not (best and best.sw_has_bfloat16()):
        pytest.skip("this processor does not multiply bfloat16")
    folder = tmp_path / "model"
    model = load(folder, adapters, "native", quantization, dtype).runner.model
    plain = load_model(folder, "native", quantization, dtype=dtype).runner.model

    for numbers in ((1, 2, 3, 0), (2,), (0, 3)):
        sequences = sequences_of(numbers)
        alone = torch.cat([last_logits(model, [whole(s)]) for s in sequences])
        assert torch.equal(alone, last_logits(model, [whole(s) for s in sequences]))
        for size in (1, 7, 33):
            for row, s in enumerate(sequences):
                for start in range(0, s.num_tokens, size):
                    chunk = Chunk(s, start, min(size, s.num_tokens - start))
                    logits = last_logits(model, [chunk])
                assert torch.equal(alone[row], logits[0])
        for row, s in enumerate(sequences):
            is_plain = torch.equal(alone[row], last_logits(plain, [whole(s)])[0])
            assert is_plain == (s.adapter == 0)
