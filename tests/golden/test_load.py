"""What can be loaded, and how what cannot is refused: with `LoadError`, never served wrongly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests, reference_tokens
from safetensors.torch import load_file, save_file
from tiny_models import CONFIGS, build, build_config, edit_config
from transformers import (
    BartConfig,
    DiffLlamaConfig,
    PhimoeConfig,
    PreTrainedConfig,
    RobertaConfig,
    StableLmConfig,
)

from streamwell.core.errors import LoadError
from streamwell.engine.families import max_positions

pytestmark = pytest.mark.slow


def tiny(config: type[PreTrainedConfig], **changes: object) -> PreTrainedConfig:
    usual = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    return config(**usual | changes)


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def truncate_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def forget_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def misshape_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 64)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def share_heads_unevenly(folder: Path) -> None:
    edit_config(folder, num_attention_heads=2, num_key_value_heads=4)


def count_layers_in_words(folder: Path) -> None:
    edit_config(folder, num_hidden_layers="2")


def break_the_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def remove_the_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def invent_a_family(folder: Path) -> None:
    edit_config(folder, model_type="nonesuch", architectures=["NonesuchForCausalLM"])


@pytest.mark.parametrize("model_impl", ["native", "torch", "transformers"])
@pytest.mark.parametrize(
    "damage",
    [
        remove_weights,
        truncate_weights,
        forget_a_tensor,
        misshape_a_tensor,
        share_heads_unevenly,
        count_layers_in_words,
        break_the_config,
        remove_the_config,
        invent_a_family,
    ],
)
def test_a_damaged_folder_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], model_impl: str
) -> None:
    """Whatever is wrong with a folder is a `LoadError`, which names the folder or the reason."""
    folder = build("llama", tmp_path)
    damage(folder)

    with pytest.raises(LoadError):
        load_model(folder, model_impl)


@pytest.mark.parametrize("model_impl", ["native", "torch"])
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "model.layers.1.mlp.up_proj.weight"),
        ("llama", "model.embed_tokens.weight"),
        ("gemma3", "model.layers.1.pre_feedforward_layernorm.weight"),
        ("phi", "model.layers.1.mlp.fc1.weight"),
        ("phi", "model.layers.1.mlp.fc1.bias"),
        ("gpt2", "transformer.h.1.ln_1.bias"),
        ("llama-biases-tied", "model.layers.1.self_attn.k_proj.bias"),
        ("phi3-window", "model.layers.1.self_attn.qkv_proj.weight"),
        ("gpt-oss", "model.layers.1.mlp.experts.down_proj"),
        ("gpt-oss", "model.layers.1.mlp.experts.down_proj_bias"),
        ("gpt-oss", "model.layers.1.self_attn.sinks"),
        ("gpt-oss", "model.layers.1.self_attn.o_proj.bias"),
    ],
)
def test_weights_that_are_missing_are_named(
    tmp_path: Path, family: str, name: str, model_impl: str
) -> None:
    """In a sentence, with the folder, and as the file would have them."""
    folder = build(family, tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(LoadError, match=rf"{tmp_path}.* has no weights '{name}'"):
        load_model(folder, model_impl)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("gemma", {"use_bidirectional_attention": True}, "not just causal"),
        ("llama4", {}, "layers of chunked_attention"),
    ],
)
def test_attention_that_we_lack_is_refused(
    tmp_path: Path, name: str, changes: dict[str, object], reason: str
) -> None:
    """Attention of all to all, in chunks: serving them without would be wrong."""
    folder = build(name, tmp_path)
    edit_config(folder, **changes)

    with pytest.raises(LoadError, match=reason):
        load_model(folder)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tiny(DiffLlamaConfig), "a layer that attends twice"),
        (tiny(StableLmConfig), "does not pass on what attention needs"),
        (
            tiny(PhimoeConfig, sliding_window=8, num_local_experts=2, num_key_value_heads=2),
            "in its masks alone",
        ),
        (
            tiny(BartConfig, decoder_layers=2, decoder_ffn_dim=48, decoder_attention_heads=4),
            "counts positions by itself",
        ),
        (tiny(RobertaConfig, is_decoder=True), "do not count from 0"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_what_would_be_wrong_from_the_second_token_on_is_refused(
    tmp_path: Path, config: PreTrainedConfig, reason: str
) -> None:
    """Models of Transformers' whose first tokens alone are right over our cache."""
    with pytest.raises(LoadError, match=reason):
        load_model(build_config(config, tmp_path), "transformers")


@pytest.mark.parametrize("model_impl", ["native", "torch", "transformers"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_head_that_is_saved_is_the_head(
    tmp_path: Path, model_impl: str, *, is_alone: bool
) -> None:
    """Although the config ties it to the embeddings; saved in their place it stands for both."""
    folder = build("llama-biases-tied", tmp_path)
    weights = load_file(folder / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    if is_alone:
        del weights["model.embed_tokens.weight"]
        weights["lm_head.weight"] = embedding
    else:
        weights["lm_head.weight"] = embedding.flip(0).contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    requests = make_requests(300)[:4]
    outcomes = EngineRig(load_model(folder, model_impl)).serve(requests)

    expected = reference_tokens(folder, requests)
    assert expected == {key: outcome.token_ids for key, outcome in outcomes.items()}


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_what_generate_would_forbid_is_told(tmp_path: Path, model_impl: str) -> None:
    """Decoders say all of their tokens; whoever starts the server learns what was recommended."""
    folder = build("llama", tmp_path)
    recommended = {"suppress_tokens": [7], "bad_words_ids": [], "min_length": 0, "num_beams": 1}
    (folder / "generation_config.json").write_text(json.dumps(recommended))

    (warning,) = load_model(folder, model_impl).info.warnings

    assert warning.endswith("what is not served: suppress_tokens=[7]")


@pytest.mark.parametrize("model_impl", ["torch", "transformers"])
def test_names_without_the_usual_prefix_are_found(tmp_path: Path, model_impl: str) -> None:
    """GPT-2 was published without it, and with masks among its weights."""
    folder = build("gpt2", tmp_path)
    expected = EngineRig(load_model(folder, model_impl)).serve(make_requests(300)[:4])
    weights = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    bare |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 8, 8) for layer in range(2)}
    save_file(bare, folder / "model.safetensors", {"format": "pt"})

    assert expected == EngineRig(load_model(folder, model_impl)).serve(make_requests(300)[:4])


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("cohere2", "attention_bias"),
        ("seed-oss", "attention_bias"),
        ("llama-biases-tied", "attention_bias"),
        ("llama-biases-tied", "mlp_bias"),
    ],
)
def test_biases_that_the_config_switches_off_are_left_out(
    tmp_path: Path, name: str, flag: str
) -> None:
    """As Transformers does, though they are saved; norms of Cohere's have none in any case."""
    folder = build(name, tmp_path)
    edit_config(folder, **{flag: False})
    weights = load_file(folder / "model.safetensors")
    if name == "cohere2":
        norms = [f"model.layers.{i}.input_layernorm" for i in range(4)]
        weights |= {f"{n}.bias": torch.ones_like(weights[f"{n}.weight"]) for n in norms}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    requests = make_requests(300)[:4]

    outcomes = EngineRig(load_model(folder)).serve(requests)

    assert reference_tokens(folder, requests) == {
        request_id: outcome.token_ids for request_id, outcome in outcomes.items()
    }


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
@pytest.mark.parametrize("model_impl", ["torch", "transformers"])
def test_a_decoder_that_sees_has_one_of_two_names(
    tmp_path: Path, model_impl: str, prefix: str
) -> None:
    """As it was published, and as Transformers calls it since."""
    folder = build("gemma3-pictures", tmp_path)
    expected = EngineRig(load_model(folder, model_impl)).serve(make_requests(300)[:4])
    saved = load_file(folder / "model.safetensors")
    bare = re.compile(r"^(model\.)?language_model\.(model\.)?")
    weights = {bare.sub(prefix, name): tensor for name, tensor in saved.items()}
    assert any(name.startswith(prefix) for name in weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    assert expected == EngineRig(load_model(folder, model_impl)).serve(make_requests(300)[:4])


def test_attention_that_cannot_be_replaced_is_refused(tmp_path: Path) -> None:
    """Falcon's code in Transformers has attention of its own; our decoder runs it all the same."""
    folder = build("falcon", tmp_path)

    with pytest.raises(LoadError, match="its attention cannot be replaced"):
        load_model(folder, "transformers")
    assert "torch" == load_model(folder).info.implementation


def test_positions_that_a_model_lacks_are_not_offered(tmp_path: Path) -> None:
    """GPT-2 calls them otherwise, and LongRoPE turns otherwise beyond the original context."""
    for name, end in {"gpt2": 128, "phi3-longrope": 64, "opt": 128}.items():
        folder = build(name, tmp_path / name)
        assert end == max_positions(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
@pytest.mark.parametrize("change", [{}, {"quantization_config": {"bits": 4}}])
def test_longrope_ends_where_it_would_turn_otherwise(kind: str, change: dict[str, Any]) -> None:
    """By any name that Phi-3's configs have for it, and on whatever code it runs."""
    factors = {"type": kind, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = CONFIGS["phi3-longrope"]().to_dict() | change
    for name in ("rope_parameters", "rope_scaling"):
        config.pop(name, None)
    config |= {"rope_scaling": factors, "original_max_position_embeddings": 64}

    assert 64 == max_positions(config)


@pytest.mark.parametrize(("factor", "reach"), [(4.0, 256), (1.5, 128)])
def test_yarn_reaches_as_far_as_it_stretches(factor: float, reach: int) -> None:
    """Configs of Qwen2.5 keep the length that was stretched; others have what came of it."""
    yarn = {"type": "yarn", "factor": factor, "original_max_position_embeddings": 64}
    config = CONFIGS["llama"]().to_dict() | {"rope_scaling": yarn}
    assert 128 == config["max_position_embeddings"]

    assert reach == max_positions(config)


@pytest.mark.parametrize("implementation", ["auto", "torch", "transformers"])
def test_a_model_that_looks_ahead_is_refused(tmp_path: Path, implementation: str) -> None:
    """Those made for embeddings; as one that does not, it would say something else."""
    folder = build("llama", tmp_path)
    edit_config(folder, is_causal=False)

    with pytest.raises(LoadError, match=r"look at those after them|does not know"):
        load_model(folder, implementation)


def test_doubles_are_computed_in_pytorch(tmp_path: Path) -> None:
    """The native helper has none."""
    folder = build("llama", tmp_path)
    file = folder / "model.safetensors"
    weights = {name: tensor.double() for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})

    assert "torch" == load_model(folder).info.implementation


def test_a_context_over_the_trained_one_is_refused(tmp_path: Path) -> None:
    """Positions that the model never saw are not offered."""
    folder = build("llama", tmp_path)
    edit_config(folder, max_position_embeddings=32)

    with pytest.raises(LoadError, match="32"):
        load_model(folder)


@pytest.mark.parametrize(("ids", "expected"), [(7, {7}), ([2, 9], {2, 9})])
def test_end_of_sequence_ids_come_from_the_generation_config(
    tmp_path: Path, ids: int | list[int], expected: set[int]
) -> None:
    """`generation_config.json` names them, one or many, whatever `config.json` says."""
    folder = build("llama", tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))

    assert expected == load_model(folder).eos_token_ids


@pytest.mark.parametrize("model_impl", ["native", "torch", "transformers"])
def test_a_sliding_window_changes_the_tokens(tmp_path: Path, model_impl: str) -> None:
    """The same weights speak differently without the window, so the golden test sees it."""
    request = make_requests(300)[1]
    tokens = []
    for name in ("mistral-window", "mistral-no-window"):
        model = load_model(build(name, tmp_path / name), model_impl)
        tokens.append(EngineRig(model).serve([request])["r1"].token_ids)

    assert tokens[0] != tokens[1]


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_layers_may_differ_in_width(tmp_path: Path, model_impl: str) -> None:
    """A layer wider than the first one has its room too, and gives what PyTorch gives."""
    folder = build("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(1)
    for name, shape in {"gate": (4096, 64), "up": (4096, 64), "down": (64, 4096)}.items():
        weights[f"model.layers.1.mlp.{name}_proj.weight"] = torch.randn(shape) / 10
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    requests = make_requests(300)[:4]

    tokens = EngineRig(load_model(folder, model_impl)).serve(requests)

    assert tokens == EngineRig(load_model(folder, "torch")).serve(requests)


def test_ids_that_the_model_cannot_say_end_nothing(tmp_path: Path) -> None:
    """An end-of-sequence id beyond the vocabulary is left out, and harms no request."""
    folder = build("llama", tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 99999, -1]}))

    assert {2} == load_model(folder).eos_token_ids
