"""GGUF files give the tokens of the model that they were made from, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests, reference_tokens, tokens_of
from native_rig import last_logits, make_sequences, whole
from tiny_gguf import write_gguf
from tiny_models import CONFIGS, VOCAB_SIZE, build_config
from transformers import AutoModelForCausalLM

from streamwell.core.errors import LoadError
from streamwell.core.types import GenerateRequest
from streamwell.engine import own_decoder
from streamwell.engine.loader import LoadedModel
from streamwell.engine.native import BLOCK_SIZE as NATIVE_BLOCK_SIZE
from streamwell.engine.native_choice import HelperBrokenError
from streamwell.models.resolve import resolve

pytestmark = pytest.mark.slow

#: What no key of the format can say has the value that llama.cpp takes.
CHANGES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-biases-tied": {},
    "llama3-rope": {},
    "llama-linear-rope": {},
    "llama-yarn": {},
    "qwen2": {},
    "qwen3-tied": {},
    "qwen2-moe": {
        "mlp_only_layers": [],
        "use_sliding_window": False,
        "sliding_window": None,
        "layer_types": ["full_attention"] * 3,
        "norm_topk_prob": False,
    },
    "qwen3-moe": {"decoder_sparse_step": 1},
    "mixtral": {},
    "gemma": {},
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {
        "query_pre_attn_scalar": 16,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    },
    "phi3-window": {},
    "phi3-longrope": {},
    "granite": {},
    "gpt-oss": {},
    "smollm3": {},
    "mistral-no-window": {},
    "ministral3": {},
    "olmo2": {},
    "olmo3": {},
    "exaone4": {},
    "exaone4-global": {},
    "seed-oss": {},
    "glm4": {},
    "ernie4-5": {},
    "cohere": {},
    "cohere2": {"attention_bias": False},
}


def build_changed(name: str, folder: Path, **changes: object) -> Path:
    config = CONFIGS[name]()
    for field, value in (CHANGES[name] | changes).items():
        setattr(config, field, value)
    return build_config(config, folder)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tokens_by(model: LoadedModel, requests: list[GenerateRequest]) -> dict[str, list[int]]:
    return {key: out.token_ids for key, out in EngineRig(model).serve(requests).items()}


def serve(file: Path, requests: list[GenerateRequest], **options: Any) -> dict[str, list[int]]:  # noqa: ANN401
    return tokens_by(load_model(resolve(str(file)), **options), requests)


@pytest.mark.parametrize("name", CHANGES)
def test_tokens_are_those_of_the_model_that_was_converted(tmp_path: Path, name: str) -> None:
    """Config and weights of every architecture come through llama.cpp's form of them unchanged."""
    folder = build_changed(name, tmp_path / "model")
    requests = make_requests(VOCAB_SIZE)[:8]

    tokens = serve(write_gguf(folder, tmp_path / "model.gguf"), requests)

    assert reference_tokens(folder, requests) == tokens


def test_a_file_in_parts_is_the_same_model(tmp_path: Path) -> None:
    """A layer's tensors may be in several, and factors of rotary embeddings in any of them."""
    folder = build_changed("llama3-rope", tmp_path / "model")
    requests = make_requests(VOCAB_SIZE)[:8]

    first = write_gguf(folder, tmp_path / "parts" / "model.gguf", "Q4_0", part_tensors=5)

    assert 3 < len(list(first.parent.iterdir()))
    whole = write_gguf(folder, tmp_path / "model.gguf", "Q4_0")
    assert serve(whole, requests) == serve(first, requests)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_tokens_are_those_of_transformers_with_the_same_file(tmp_path: Path, kind: str) -> None:
    """Rounded weights are turned back into the floats that they stand for."""
    file = write_gguf(build_changed("llama", tmp_path / "model"), tmp_path / "tiny.gguf", kind)
    requests = make_requests(VOCAB_SIZE)[:8]
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32)

    assert tokens_of(model.eval(), requests) == serve(file, requests)


@pytest.mark.parametrize(
    ("name", "kind", "quantization"),
    [
        ("llama", "Q4_0", "int4"),
        ("llama", "Q8_0", "int8"),
        ("llama", "Q5_0", "int8"),
        ("llama", "F16", "none"),
        ("llama-biases-tied", "Q4_0", "int4"),
        ("phi3-longrope", "Q4_1", "int4"),
        ("gemma2", "Q4_0", "int4"),
        ("mixtral", "Q4_1", "int4"),
        ("qwen3-moe", "Q8_0", "int8"),
        ("qwen2-moe", "Q4_0", "int4"),
        ("gpt-oss", "MXFP4", "int4"),
        ("glm4", "Q4_0", "int4"),
        ("cohere2", "Q8_0", "int8"),
    ],
)
def test_what_is_rounded_in_the_file_stays_so(
    tmp_path: Path, name: str, kind: str, quantization: str
) -> None:
    """Logits are near those of the floats in the file: what is rounded beside is inputs."""
    changes = {"shared_expert_intermediate_size": 64} if name == "qwen2-moe" else {}
    folder = build_changed(name, tmp_path / "model", **changes)
    file = resolve(str(write_gguf(folder, tmp_path / "tiny.gguf", kind)))
    chunks = [whole(sequence) for sequence in make_sequences(name)]

    kept = load_model(file, "native", "auto")

    assert quantization == kept.info.quantization
    floats = load_model(file, "torch", block_size=NATIVE_BLOCK_SIZE)
    logits = [last_logits(model.runner.model, chunks) for model in (kept, floats)]
    # a router that is all but undecided takes another expert
    least = 0.98 if name in ("gpt-oss", "mixtral", "qwen2-moe", "qwen3-moe") else 0.998
    assert torch.nn.functional.cosine_similarity(*logits).mean() > least


@pytest.mark.parametrize("value", ["Q4_0", "Q8_0", "Q5_0", "F32"])
def test_queries_keys_and_values_keep_a_type_each(tmp_path: Path, value: str) -> None:
    """As in most files: a token's logits, alone or beside others, are near those of the floats."""
    folder = build_changed("llama-biases-tied", tmp_path / "model")
    kinds = {"attn_v": value, "attn_k": "Q4_1"}
    file = resolve(str(write_gguf(folder, tmp_path / "tiny.gguf", "Q4_0", kinds=kinds)))
    chunks = [whole(sequence) for sequence in make_sequences("llama")]
    kept = load_model(file, "native", "auto").runner.model
    floats = load_model(file, "torch", block_size=NATIVE_BLOCK_SIZE).runner.model

    logits = last_logits(kept, chunks)

    assert torch.equal(last_logits(kept, chunks[:1]), logits[:1])
    expected = last_logits(floats, chunks)
    assert torch.nn.functional.cosine_similarity(logits, expected).mean() > 0.998


def test_pytorch_computes_with_the_floats_of_a_rounded_file(tmp_path: Path) -> None:
    """It has no small numbers to keep, and nobody asked for them: nothing is warned of."""
    folder = build_changed("llama", tmp_path / "model")
    file = resolve(str(write_gguf(folder, tmp_path / "tiny.gguf", "Q4_0")))
    requests = make_requests(VOCAB_SIZE)[:4]
    model = load_model(file, "torch", "auto")

    assert ("torch", "none", ()) == (
        model.info.implementation,
        model.info.quantization,
        model.info.warnings,
    )
    assert tokens_by(load_model(file, "torch"), requests) == tokens_by(model, requests)


def test_norms_that_our_decoders_lack_are_not_left_out(tmp_path: Path) -> None:
    """Command R+ has layer norms of its own in each head, and no key that says so."""
    folder = build_changed("cohere", tmp_path / "model", use_qk_norm=True)
    file = write_gguf(folder, tmp_path / "model.gguf")

    with pytest.raises(LoadError, match=r"a tensor 'blk.0.attn_[qk]_norm.weight', which is not"):
        load_model(resolve(str(file)))


def test_transformers_code_is_not_asked_for_a_gguf_file(tmp_path: Path) -> None:
    """It would look for safetensors, and say that there are none."""
    file = resolve(str(write_gguf(build_changed("llama", tmp_path / "m"), tmp_path / "m.gguf")))

    with pytest.raises(LoadError, match="GGUF files run on our decoders only"):
        load_model(file, "transformers", "auto")


def test_a_helper_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights become floats then, which take more memory than the file promised."""

    def fail(_helper: object, _build: object) -> None:
        raise HelperBrokenError("it failed")

    monkeypatch.setattr(own_decoder, "run_by", fail)
    folder = build_changed("llama", tmp_path / "model")
    file = resolve(str(write_gguf(folder, tmp_path / "tiny.gguf", "Q4_0")))

    info = load_model(file, "auto", "auto", block_size=NATIVE_BLOCK_SIZE).info

    assert ("torch", "none") == (info.implementation, info.quantization)
    assert "weights that are rounded in the file become floats: it failed" == info.warnings[0]
