"""GPT-OSS as it is published: experts in MXFP4, which our decoders read themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests, reference_tokens
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from native_rig import last_logits, make_sequences, whole
from safetensors.torch import load_file, save_file
from tiny_models import VOCAB_SIZE, build
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from streamwell.core.errors import LoadError
from streamwell.engine.checkpoint import open_checkpoint
from streamwell.engine.native import BLOCK_SIZE as NATIVE_BLOCK_SIZE
from streamwell.models.outline import size_in_memory

pytestmark = pytest.mark.slow

MXFP4 = GGMLQuantizationType.MXFP4
EXPERTS = "model.layers.0.mlp.experts"


def rounded(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Blocks, scales and floats of `[experts, in_features, out_features]`."""
    rows = quantize(weight.transpose(1, 2).contiguous().numpy(), MXFP4)
    floats = torch.from_numpy(dequantize(rows, MXFP4)).transpose(1, 2).contiguous()
    saved = torch.from_numpy(rows).unflatten(-1, (-1, 17))
    scales, halves = saved[..., 0], saved[..., 1:]
    levels = torch.cat((halves & 15, halves >> 4), -1)
    return (levels[..., ::2] | levels[..., 1::2] << 4).contiguous(), scales.contiguous(), floats


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A tiny model; `plain` beside it has the same numbers as floats."""
    folder, plain = build("gpt-oss", tmp_path / "rounded"), build("gpt-oss", tmp_path / "plain")
    weights = load_file(folder / "model.safetensors")
    floats = dict(weights)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "experts.down_proj"))]:
        blocks, scales, floats[name] = rounded(weights.pop(name))
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    save_file(floats, plain / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_tokens_are_those_of_the_same_numbers_as_floats(published: Path, model_impl: str) -> None:
    """With `--quantization none`, by Transformers' `generate`."""
    requests = make_requests(VOCAB_SIZE)[:8]

    outcomes = EngineRig(load_model(published, model_impl)).serve(requests)

    expected = reference_tokens(published.parent / "plain", requests)
    assert expected == {key: outcome.token_ids for key, outcome in outcomes.items()}


def test_experts_stay_as_they_are(published: Path) -> None:
    """In the native helper, without a word; logits are near those of the floats."""
    chunks = [whole(sequence) for sequence in make_sequences("gpt-oss")]

    kept = load_model(published, quantization="auto", block_size=NATIVE_BLOCK_SIZE)

    assert ("native", "int4") == (
        kept.info.implementation.partition("/")[0],
        kept.info.quantization,
    )
    floats = load_model(published, "torch", block_size=NATIVE_BLOCK_SIZE)
    logits = [last_logits(model.runner.model, chunks) for model in (kept, floats)]
    assert torch.nn.functional.cosine_similarity(*logits).mean() > 0.98


def test_numbers_are_those_of_transformers(published: Path) -> None:
    """Gates, and what they multiply, take turns."""
    saved = load_file(published / "model.safetensors")
    names = (f"{EXPERTS}.gate_up_proj_{part}" for part in ("blocks", "scales"))
    expected = convert_moe_packed_tensors(*(saved[n] for n in names), dtype=torch.float32)

    weights = open_checkpoint(published, torch.float32, lambda _done: None)

    for index, expert in enumerate(expected):
        for part, rows in (("gate", expert.T[::2]), ("up", expert.T[1::2])):
            assert torch.equal(rows, weights[f"{EXPERTS}.{index}.{part}_proj.weight"])


def test_what_it_takes_in_memory(published: Path) -> None:
    """Four times as much of the experts, where they become floats of two bytes."""
    saved = load_file(published / "model.safetensors")
    blocks = sum(tensor.numel() for name, tensor in saved.items() if name.endswith("_blocks"))

    kept = size_in_memory(published, keeps_rounding=True)

    assert (published / "model.safetensors").stat().st_size == kept
    assert kept + 3 * blocks == size_in_memory(published, keeps_rounding=False)


@pytest.mark.parametrize("scales", [None, torch.zeros(4, 64, 2, dtype=torch.uint8)])
def test_scales_that_do_not_fit_are_refused(published: Path, scales: torch.Tensor | None) -> None:
    """Or that are not there."""
    file, name = published / "model.safetensors", f"{EXPERTS}.down_proj_scales"
    saved = load_file(file)
    del saved[name]
    save_file(saved | ({} if scales is None else {name: scales}), file, {"format": "pt"})

    with pytest.raises(
        LoadError, match=rf"{published}: the scales of .*down_proj_blocks are missing, or of"
    ):
        load_model(published)


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        ("down_proj_scales", torch.zeros(4, 64, 3), "down_proj_blocks or its scales are no bytes"),
        ("down_proj_blocks", torch.zeros(4, 64, 3, 16, dtype=torch.int32), "are no bytes"),
        ("down_proj_blocks", torch.zeros(4, 64, dtype=torch.uint8), "or of another shape than it"),
        ("down_proj", torch.zeros(4, 96, 64), "is there a second time, as .*down_proj"),
        ("foo_blocks", torch.zeros(1, dtype=torch.uint8), "foo_blocks is no tensor of floats"),
        ("2.up_proj.weight", torch.zeros(96, 64), "a second time, as .*2.up_proj.weight"),
    ],
)
def test_what_is_no_mxfp4_is_refused(
    published: Path, name: str, tensor: torch.Tensor, says: str
) -> None:
    """With the folder and the tensor."""
    file = published / "model.safetensors"
    save_file(load_file(file) | {f"{EXPERTS}.{name}": tensor}, file, {"format": "pt"})

    with pytest.raises(LoadError, match=rf"{published}: .*{says}"):
        load_model(published)


def test_experts_that_are_only_in_part_too_many_are_refused(published: Path) -> None:
    """Biases of five, for four."""
    file, name = published / "model.safetensors", f"{EXPERTS}.down_proj_bias"
    saved = load_file(file)
    save_file(saved | {name: torch.cat((saved[name], saved[name][:1]))}, file, {"format": "pt"})

    with pytest.raises(LoadError, match="layer 0 has more experts than 4"):
        load_model(published)


def test_more_experts_than_the_config_says_are_refused(published: Path) -> None:
    """They would be left out."""
    config = json.loads((published / "config.json").read_text())
    (published / "config.json").write_text(json.dumps(config | {"num_local_experts": 3}))

    with pytest.raises(LoadError, match="layer 0 has more experts than 3"):
        load_model(published)
