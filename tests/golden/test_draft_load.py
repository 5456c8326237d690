"""Which draft models are taken, what they share with the model, and why others are refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engine_rig import MAX_MODEL_LEN, EngineRig, load_model, make_requests
from tiny_models import CONFIGS, VOCAB_SIZE, build
from tiny_seq2seq import build as build_seq2seq
from transformers import AutoModelForCausalLM

from bench.draft_pairs import first_layers
from bench.speculation import brooklet_requests, count_differences, load_pair
from streamwell.core.errors import LoadError
from streamwell.engine.loader import LoadedModel, load
from streamwell.engine.messages import EngineConfig
from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("llama", tmp_path_factory.mktemp("target"))


def with_vocabulary(folder: Path, size: int, **changes: Any) -> Path:  # noqa: ANN401 - a config's fields
    """A small model that knows so many tokens, and names fewer in its tokenizer."""
    config = CONFIGS["llama"]()
    config.update({"vocab_size": size} | changes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    vocab = {"model": {"vocab": {str(token_id): token_id for token_id in range(200)}}}
    (folder / "tokenizer.json").write_text(json.dumps(vocab), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("size", "draft_size"), [(300, 240), (240, 300)])
@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_vocabularies_may_be_padded_to_other_sizes(
    tmp_path: Path, size: int, draft_size: int, model_impl: str
) -> None:
    """Prompts may hold ids that the draft model lacks; no guess is one that the model lacks."""
    folder = with_vocabulary(tmp_path / "model", size)
    draft = with_vocabulary(tmp_path / "draft", draft_size)
    requests = make_requests(size)

    rig = EngineRig(load_model(folder, model_impl, draft=draft))

    assert EngineRig(load_model(folder, model_impl)).serve(requests) == rig.serve(requests)
    assert rig.loop.stats().num_draft_tokens > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 240}, "knows 240 tokens, and the model 300"),
        ({"max_position_embeddings": 60}, "reads at most 60 tokens, and the model 64"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "asks for code to be run"),
        ({"num_hidden_layers": 99}, "num_hidden_layers is 99"),
        ({"num_hidden_layers": 3}, "model.layers.2"),
        ({"rms_norm_eps": None}, "cannot load"),
    ],
)
def test_a_draft_model_that_does_not_fit_is_refused(
    target: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Its folder is as hostile as any other, and is named."""
    draft = build("mistral-window", tmp_path / "draft")
    config = json.loads((draft / "config.json").read_text()) | changes
    (draft / "config.json").write_text(json.dumps(config))

    with pytest.raises(LoadError, match=f"^--speculative-model: .*{message}"):
        load_model(target, draft=draft)


def test_other_vocabularies_are_refused(target: Path, tmp_path: Path) -> None:
    """Also where one of the two says nothing of its tokens."""
    with pytest.raises(LoadError, match="cannot be compared"):
        load_model(target, draft=with_vocabulary(tmp_path / "draft", VOCAB_SIZE))


def test_encoder_decoders_neither_guess_nor_are_guessed_for(target: Path, tmp_path: Path) -> None:
    """Both are told by their configs."""
    seq2seq = build_seq2seq("t5", tmp_path / "t5")

    with pytest.raises(LoadError, match="holds an encoder-decoder"):
        load_model(target, draft=seq2seq)
    with pytest.raises(LoadError, match="not for encoder-decoders"):
        load_model(seq2seq, "auto", draft=target)


def load_with_cache(target: Path, num_bytes: int | None, draft: Path | None) -> LoadedModel:
    config = EngineConfig(
        model_path=str(target),
        device="cpu",
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=64,
        max_num_batched_tokens=64,
        kv_cache_bytes=num_bytes,
        block_size=16,
        num_threads=1,
        speculative_model=str(draft) if draft else None,
    )
    return load(config, lambda _stage, _progress: None)


def test_all_have_room_for_a_whole_context_when_nothing_is_said(target: Path) -> None:
    """As far as the default goes, which is far for a small model."""
    num_blocks = load_with_cache(target, None, None).info.num_blocks

    assert num_blocks == 64 * -(-MAX_MODEL_LEN // 16)


def test_both_models_share_the_memory_of_the_cache(target: Path) -> None:
    """With a draft model of the same size there are half as many blocks."""
    num_bytes = 1 << 18

    alone, both = (load_with_cache(target, num_bytes, draft) for draft in (None, target))

    assert alone.info.num_blocks == 2 * both.info.num_blocks
    with pytest.raises(LoadError, match="cannot hold one sequence"):
        load_with_cache(target, alone.runner.model.bytes_per_token * MAX_MODEL_LEN, target)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_no_answer_of_the_model_in_the_box_changes(tmp_path: Path, num_layers: int) -> None:
    """Forty conversations, guessed by its first layers; `bench.speculation --identity` has more."""
    model = load_pair(first_layers("draft", brooklet_path(), tmp_path, num_layers), "float32")
    requests = list(brooklet_requests(40, Random(0)))

    differences, stats = count_differences(model, requests, 4, Random(0))

    assert 0 == differences
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens
