"""Whole models on the native helper, in every instruction set, and each row for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import tiny_seq2seq
import torch
from engine_rig import load_model
from native_rig import last_logits, make_sequences, whole
from safetensors.torch import load_file, save_file

from streamwell.core.types import SamplingParams
from streamwell.engine.model_runner import Model
from streamwell.engine.native import BLOCK_SIZE, library
from streamwell.engine.native.decoder import NativeDecoder
from streamwell.engine.quantization import rounded
from streamwell.engine.seq2seq.native_model import NativeSeq2Seq
from streamwell.engine.sequence import Chunk, Sequence

pytestmark = pytest.mark.slow

#: Between them, all parts of the helper.
DECODERS = ["gemma2", "gpt-neox", "gpt-oss", "gpt2", "olmo2", "qwen2-moe"]
ENCODER_DECODERS = ["bart", "flan-t5"]


def build(name: str, folder: Path) -> Path:
    """A tiny model of either kind; a rounding does not turn its attention to another token."""
    if name not in tiny_seq2seq.CONFIGS:
        return tiny_models.build(name, folder)
    path = tiny_seq2seq.build(name, folder) / "model.safetensors"
    weights = load_file(path)
    for key, weight in weights.items():
        if key.endswith(("ttention.q.weight", "_attn.q_proj.weight")):
            weight /= 4
    save_file(weights, path, {"format": "pt"})
    return folder


def native_model(folder: Path, dtype: str = "float32", quantization: str = "none") -> Model:
    """Skips where the processor does not multiply in this dtype."""
    best = library.best()
    if dtype == "bfloat16" and not (best and best.sw_has_bfloat16()):
        pytest.skip("this processor does not multiply bfloat16")
    return load_model(folder, "native", quantization, dtype=dtype).runner.model


@pytest.mark.parametrize("name", [*DECODERS, *ENCODER_DECODERS])
def test_every_instruction_set_runs_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Logits are those of PyTorch; in bfloat16, where a variant has it, near to them."""
    folder = build(name, tmp_path)
    chunks = [whole(sequence) for sequence in make_sequences(name)]
    reference = load_model(folder, "torch", block_size=BLOCK_SIZE).runner.model
    expected = last_logits(reference, chunks)
    for variant in library.instruction_sets():
        helper = library.load(variant)
        assert helper is not None, "the helper is not compiled"
        monkeypatch.setattr(library, "best", lambda it=helper: it)

        logits = last_logits(native_model(folder), chunks)

        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=2e-4)
        if helper.sw_has_bfloat16():
            rough = last_logits(native_model(folder, "bfloat16"), chunks)
            assert torch.nn.functional.cosine_similarity(rough, expected).mean() > 0.998


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "mistral-window",
        "qwen3-tied",
        "gpt-neox",
        "gpt-oss",
        "qwen2-moe",
        "mixtral",
        "flan-t5",
    ],
)
@pytest.mark.parametrize(
    ("dtype", "quantization"),
    [("float32", "none"), ("float32", "int8"), ("float32", "int4"), ("bfloat16", "none")],
)
def test_a_token_does_not_depend_on_batch_or_chunks(
    tmp_path: Path, name: str, dtype: str, quantization: str
) -> None:
    """Logits of the last token: the same bits alone, in chunks of any size, in a crowd.

    Nor does it matter which others have outputs: some, none of a sequence, or all.
    """
    model = native_model(build(name, tmp_path), dtype, quantization)
    sequences = make_sequences(name)

    alone = torch.cat([last_logits(model, [whole(s)]) for s in sequences])
    crowd = last_logits(model, [whole(s) for s in sequences])
    assert torch.equal(alone, crowd)
    for size in (1, 7, 16, 33):
        for row, s in enumerate(sequences):
            for start in range(0, s.num_tokens, size):
                chunk = Chunk(s, start, min(size, s.num_tokens - start))
                logits = last_logits(model, [chunk])
            assert torch.equal(alone[row], logits[0])
    chunks, num_rows = [whole(s) for s in sequences], sum(s.num_tokens for s in sequences)
    with torch.inference_mode():
        every = model.forward(chunks, list(range(num_rows))).clone()
        rows = [*range(5, 20), num_rows - 1]  # within the second sequence, and the last's end
        some = model.forward(chunks, rows)
    assert torch.equal(every[rows], some)
    assert torch.equal(every[-1], alone[-1])


@pytest.mark.parametrize("model_impl", ["native", "torch"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_embeddings_of_their_own_are_rounded_as_an_output_layer_is(
    tmp_path: Path, model_impl: str, quantization: str
) -> None:
    """Logits are those of a model whose embeddings were rounded to eight bits before."""
    folder = build("llama", tmp_path)
    chunks = [whole(sequence) for sequence in make_sequences("llama")]
    logits = []
    for _ in range(2):
        model = load_model(folder, model_impl, quantization, block_size=BLOCK_SIZE).runner.model
        logits.append(last_logits(model, chunks))
        weights = load_file(folder / "model.safetensors")
        before = weights["model.embed_tokens.weight"]
        weights["model.embed_tokens.weight"] = rounded(before, "int8")
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)


@pytest.fixture
def restored_threads() -> Iterator[None]:
    """As many threads afterwards as before."""
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize("name", ["llama", "qwen2-moe", "mixtral", "flan-t5"])
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_logits_do_not_depend_on_the_number_of_threads(
    tmp_path: Path, name: str, quantization: str
) -> None:
    """Few rows and many: threads share a layer, or each takes experts of its own."""
    model = native_model(build(name, tmp_path), quantization=quantization)
    sequences = make_sequences(name)
    logits = []

    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        crowd = last_logits(model, [whole(s) for s in sequences])
        alone = torch.cat([last_logits(model, [whole(s)]) for s in sequences])
        logits.append(torch.cat((crowd, alone)))

    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "llama-biases-tied",
        "mistral-window",
        "qwen3-tied",
        "gemma2",
        "olmo2",
        "granite",
        "gpt-oss",
        "gpt2",
        "gpt-neox",
        "t5",
        "mbart",
    ],
)
@pytest.mark.parametrize("has_fast_pairs", [True, False], ids=["pairs", "widened"])
def test_a_model_in_bfloat16_is_near_the_one_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_fast_pairs: bool
) -> None:
    """Logits of a prompt, cut in two, differ by no more than roundings; stale blocks do no harm."""
    helper = library.best()
    assert helper is not None, "the helper is not compiled"
    monkeypatch.setattr(helper, "sw_has_fast_pairs", lambda: has_fast_pairs)
    folder = build(name, tmp_path)
    sequence = make_sequences(name)[1]
    sequence.block_ids = [3, 1, 2]
    logits = []
    for dtype in ("bfloat16", "float32"):
        model = native_model(folder, dtype)
        assert isinstance(model, NativeDecoder | NativeSeq2Seq)
        for cache in model.cache:
            cache.fill(0x7FC0 if dtype == "bfloat16" else np.nan)  # not numbers, in either
        with torch.inference_mode():
            model.forward([Chunk(sequence, 0, 20)], [])
            logits.append(model.forward([Chunk(sequence, 20, 21)], list(range(21))).clone())

    cosines = torch.nn.functional.cosine_similarity(*logits)

    assert cosines.mean() > 0.999


def test_a_key_that_is_not_a_number_poisons_who_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is all that a token sees of a tile of 64 keys, and its value is finite."""
    folder, last = build("mistral-window", tmp_path), 63
    sequence = Sequence("0", [7] * (last + tiny_models.WINDOW), SamplingParams(max_tokens=1))
    sequence.block_ids = [1, 2, 3, 4, 5]
    chunk = Chunk(sequence, sequence.num_tokens - 1, 1)
    for variant in library.instruction_sets():
        helper = library.load(variant)
        assert helper is not None, "the helper is not compiled"
        monkeypatch.setattr(library, "best", lambda it=helper: it)
        for dtype in ("float32", "bfloat16") if helper.sw_has_bfloat16() else ("float32",):
            model = load_model(folder, "native", dtype=dtype, max_model_len=80).runner.model
            assert isinstance(model, NativeDecoder)
            model.allocate(num_blocks := 5)
            last_logits(model, [Chunk(sequence, 0, chunk.start)])
            sound = last_logits(model, [chunk])
            width, not_a_number = (2, 0x7FC0) if dtype == "bfloat16" else (1, np.nan)
            numbers = model.cache[0].reshape(num_blocks + 1, 2, -1, BLOCK_SIZE, width)
            keys = numbers[:, :, :16]  # of heads of 16, padded to 32 in pairs
            keys[sequence.block_ids[last // BLOCK_SIZE], :, :, last % BLOCK_SIZE] = not_a_number

            poisoned = last_logits(model, [chunk])

            assert sound.isfinite().all()
            assert not poisoned.isfinite().any()


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_an_input_that_is_not_finite_harms_no_other(tmp_path: Path, name: str) -> None:
    """A token whose embedding is damaged poisons its own sequence, and what comes after it none."""
    model = native_model(build(name, tmp_path))
    assert isinstance(model, NativeSeq2Seq)
    sequences = make_sequences(name)
    expected = last_logits(model, [whole(s) for s in sequences])
    embed = model._encoder.embed

    def damaged(token_ids: np.ndarray, positions: np.ndarray, out: torch.Tensor) -> None:  # type: ignore[type-arg]
        embed(token_ids, positions, out)
        out[0] = torch.nan

    model._encoder.embed = damaged  # type: ignore[assignment]
    poisoned = last_logits(model, [whole(s) for s in sequences])
    model._encoder.embed = embed
    healed = last_logits(model, [whole(s) for s in sequences])

    assert not poisoned[0].isfinite().any()
    assert torch.equal(poisoned[1:], expected[1:])
    assert torch.equal(healed, expected)
