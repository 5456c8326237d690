"""A config that does not fit the weights beside it is refused, or told; one that fits is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import tiny_seq2seq
from engine_rig import load_model
from safetensors.torch import load_file, save_file
from tiny_models import edit_config
from zoo import ZOO

from streamwell.core.errors import LoadError

#: Tiny models, and each way that runs them.
DECODERS = [(name, impl) for entry in ZOO for name, impls in entry.models.items() for impl in impls]


def unused(folder: Path, model_impl: str = "auto") -> list[str]:
    """What is told of weights that are not used."""
    warnings = load_model(folder, model_impl).info.warnings
    return [text for text in warnings if text.startswith("weights that are not used")]


@pytest.mark.parametrize(("name", "model_impl"), DECODERS)
def test_all_weights_of_a_sound_model_are_used(tmp_path: Path, name: str, model_impl: str) -> None:
    """No family has weights that its mapping overlooks."""
    assert [] == unused(tiny_models.build(name, tmp_path), model_impl)


@pytest.mark.parametrize("name", tiny_seq2seq.CONFIGS)
def test_all_layers_of_a_sound_encoder_decoder_are_used(tmp_path: Path, name: str) -> None:
    """Layers are counted on both sides."""
    assert [] == unused(tiny_seq2seq.build(name, tmp_path))


@pytest.mark.parametrize("model_impl", ["native", "torch", "transformers"])
def test_layers_that_the_config_leaves_out_are_told(tmp_path: Path, model_impl: str) -> None:
    """It would be another model that answers; what is used is told apart from what is not."""
    folder = tiny_models.build("llama", tmp_path)
    edit_config(folder, num_hidden_layers=1)

    (told,) = unused(folder, model_impl)

    assert "not used: 9, among them 'model.layers.1.input_layernorm.weight'" in told


@pytest.mark.parametrize(("field", "side"), [("num_layers", "en"), ("num_decoder_layers", "de")])
def test_layers_of_either_side_are_told(tmp_path: Path, field: str, side: str) -> None:
    """An encoder may have fewer layers than the decoder, but not fewer than are saved."""
    folder = tiny_seq2seq.build("t5", tmp_path)
    edit_config(folder, **{"num_layers": 2, "num_decoder_layers": 2, field: 1})

    (told,) = unused(folder)

    assert f"'{side}coder.block.1." in told


def test_a_part_that_the_family_lacks_is_told(tmp_path: Path) -> None:
    """Norms of queries beside a config of Llama's are another family's; buffers are not missed."""
    folder = tiny_models.build("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    norm = "model.layers.0.self_attn.q_norm.weight"
    weights[norm] = weights["model.norm.weight"][:16].clone()
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = weights[norm].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    (told,) = unused(folder)

    assert f"not used: 1, among them '{norm}'" in told


@pytest.mark.parametrize("flag", ["attention_bias", "mlp_bias"])
def test_biases_that_only_the_config_has_are_told(tmp_path: Path, flag: str) -> None:
    """They are taken for zeros, which Transformers' code would be given too."""
    folder = tiny_models.build("llama", tmp_path)
    edit_config(folder, **{flag: True})

    assert (f"config.json has {flag}, but the weights have no such biases",) == (
        load_model(folder).info.warnings
    )


@pytest.mark.parametrize(
    ("name", "field", "size"),
    [
        ("llama", "vocab_size", 299),
        ("llama", "hidden_size", 60),
        ("gpt2", "vocab_size", 7),
        ("gemma3-pictures", "text_config.vocab_size", 7),
        ("t5", "vocab_size", 7),
        ("bart", "vocab_size", 7),
    ],
)
def test_embeddings_are_as_large_as_the_config_says(
    tmp_path: Path, name: str, field: str, size: int
) -> None:
    """Where they are not, one of the two is another model's: the field is named."""
    models: Any = tiny_models if name in tiny_models.CONFIGS else tiny_seq2seq
    folder = models.build(name, tmp_path)
    outer, _, inner = field.rpartition(".")
    config = models.CONFIGS[name]().to_dict()
    edit_config(folder, **({outer: config[outer] | {inner: size}} if outer else {inner: size}))

    with pytest.raises(LoadError, match=f"config.json: {inner} is {size}, but the embeddings have"):
        load_model(folder, "auto")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_act": "nope"}, "hidden_act is 'nope', which Transformers does not know"),
        ({"rope_scaling": {"type": "nope"}}, "rope_scaling.type is 'nope'"),
        ({"num_key_value_heads": 1}, "weights are not of the sizes that its config.json says"),
        ({"attention_bias": True}, r"has no weights 'model.layers.0.self_attn.k_proj.bias' and 7"),
    ],
)
def test_transformers_refusals_say_what_is_wrong(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    """Its own words are a bare `'nope'`, or an option that nobody has given."""
    folder = tiny_models.build("llama", tmp_path)
    edit_config(folder, **changes)

    with pytest.raises(LoadError, match=re.escape(told)):
        load_model(folder, "transformers")


@pytest.mark.parametrize(("buckets", "distance"), [(32, 16), (32, 1), (2, 128), (3, 128)])
def test_distances_that_no_bucket_holds_are_refused(
    tmp_path: Path, buckets: int, distance: int
) -> None:
    """A logarithm of nothing would be taken; both fields are named."""
    folder = tiny_seq2seq.build("t5", tmp_path)
    edit_config(
        folder,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
    )

    with pytest.raises(LoadError, match=rf"max_distance is {distance}.*{buckets} in relative_"):
        load_model(folder)
