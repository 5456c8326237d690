"""How the lean decoder reads a `config.json`: as Transformers does, or not at all."""

from __future__ import annotations

from typing import Any

import published_configs
import pytest
from huggingface_hub.errors import StrictDataclassError
from tiny_models import CONFIGS
from transformers import AutoConfig
from zoo import DOCUMENT, ZOO, updated

from streamwell.engine.families import FAMILIES, describe, max_positions
from streamwell.engine.families.pictures import PICTURES

KNOWN = [name for entry in ZOO for name, impls in entry.models.items() if "torch" in impls]
UNKNOWN = sorted(CONFIGS.keys() - set(KNOWN))


def test_every_family_is_tested() -> None:
    """No mapping without a tiny model, which the golden tests go through."""
    assert FAMILIES.keys() | PICTURES == {CONFIGS[name]().model_type for name in KNOWN}


def test_the_table_in_the_docs_is_up_to_date() -> None:
    """It is written by `python tests/golden/zoo.py`."""
    text = DOCUMENT.read_text(encoding="utf-8")

    assert updated(text) == text


@pytest.mark.parametrize("name", KNOWN)
def test_the_lean_decoder_sees_the_windows_that_transformers_sees(name: str) -> None:
    """Which layers slide, and how far, is read from the config as Transformers reads it."""
    config = CONFIGS[name]()
    spec = describe(config.to_dict())
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None:
        kind = "full_attention" if window is None else "sliding_attention"
        kinds = [kind] * config.num_hidden_layers

    assert spec is not None
    assert tuple(window if k == "sliding_attention" else None for k in kinds) == spec.windows


@pytest.mark.parametrize("name", published_configs.CONFIGS)
def test_published_configs_are_understood(name: str) -> None:
    """In the words of their time; with what they leave out, and what was renamed since."""
    published = published_configs.CONFIGS[name]
    config = AutoConfig.for_model(**published)

    assert describe(published) is not None
    assert describe(config.to_dict()) == describe(published)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_fully_known_is_not_guessed(name: str) -> None:
    """A family or a rotary scaling that the lean decoder lacks runs on Transformers' code."""
    assert describe(CONFIGS[name]().to_dict()) is None


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"hidden_act": "relu"}),
        ("llama", {"pretraining_tp": 2}),
        ("llama", {"quantization_config": {"bits": 4}}),
        ("llama", {"per_layer_config": {"0": {"num_key_value_heads": 4}}}),
        ("llama", {"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4}}),
        ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
        ("llama", {"rope_scaling": {"type": "mrope"}}),
        ("llama", {"is_causal": False}),
        ("llama", {"rope_scaling": ["linear"]}),
        ("mistral-window", {"layer_types": ["full_attention"] * 2}),
        ("qwen2-window", {"layer_types": ["full_attention"]}),
        ("qwen2-window", {"layer_types": ["chunked_attention"] * 2}),
        ("qwen2-window", {"layer_types": [{}] * 2}),
        ("qwen2-window", {"max_window_layers": "1"}),
        ("qwen3-moe", {"num_experts_per_tok": 7}),
        ("qwen3-moe", {"mlp_only_layers": ["1"]}),
        ("gemma", {"use_bidirectional_attention": True}),
        ("gemma2", {"hidden_activation": "silu", "hidden_act": "gelu"}),
        ("gemma3", {"rope_parameters": {"chunked_attention": {}}}),
        ("phi3-longrope", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}}),
        ("phi3-longrope", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 1e30}}),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": -1}}),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_slow": 1e-310}}),
        (
            "llama",
            {"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": -9}},
        ),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt2", {"add_cross_attention": True}),
        ("gpt2", {"num_hidden_layers": 3}),
        ("gpt-neox", {"head_dim": 8}),
        ("falcon", {"alibi": True}),
        ("falcon-groups", {"parallel_attn": False}),
        ("smollm3", {"no_rope_layers": [1, 2, 1, 0]}),
        ("smollm3", {"sliding_window": 8, "layer_types": ["sliding_attention"] * 4}),
        ("gemma3", {"rope_scaling": {"type": "linear", "factor": 8.0}}),
        ("gemma3-pictures", {"quantization_config": {"bits": 4}}),
        ("gemma3-pictures", {"text_config": {"model_type": "gemma4_text"}}),
        ("gemma3-pictures", {"text_config": {"model_type": "gemma3"}}),
        ("mistral3", {"text_config": None}),
        ("mistral3", {"tie_word_embeddings": None}),
        ("ministral3", {"layer_types": ["full_attention"] * 2}),
        ("ministral3", {"rope_scaling": {"type": "linear", "factor": 8.0}}),
        ("exaone4", {"layer_types": None, "sliding_window_pattern": "LLLG"}),
        ("exaone4-global", {"layer_types": None}),
        ("exaone4-global", {"layer_types": ["sliding_attention"] * 2}),
        ("cohere", {"use_qk_norm": True}),
        ("cohere", {"logit_scale": 0}),
        ("cohere2", {"head_dim": 32}),
    ],
)
def test_what_a_config_says_is_not_ignored(name: str, changes: dict[str, Any]) -> None:
    """A value that changes the model and that the mapping has no place for makes it unknown."""
    assert describe(CONFIGS[name]().to_dict() | changes) is None


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_config_leaves_out_is_not_guessed(name: str) -> None:
    """A missing field has the default of Transformers' config of the family, or is not known."""
    config = CONFIGS[name]()
    fields = config.to_dict()
    fields.pop("layer_types", None)  # derived from the others, and absent from most folders
    wrong = []
    for left_out in fields.keys() - {"model_type"}:
        rest = {key: value for key, value in fields.items() if key != left_out}
        try:
            complete = describe(type(config).from_dict(dict(rest)).to_dict())
        except (StrictDataclassError, LookupError, ArithmeticError):  # it cannot do without
            complete = None
        if describe(rest) not in (None, complete):
            wrong.append(left_out)

    assert [] == sorted(wrong)


@pytest.mark.parametrize("name", KNOWN)
def test_junk_is_unknown_and_no_crash(name: str) -> None:
    """Whatever a field holds, there is a spec or there is none; `max_positions` agrees."""
    fields = CONFIGS[name]().to_dict()
    for field in fields:
        for junk in (None, [], [[]], {}, {"a": {}}, "x", "silu", -1, 0, 1 << 70, 1e400, True):
            spec = describe(fields | {field: junk})
            if spec is not None:
                assert 0 < spec.max_position_embeddings == max_positions(fields | {field: junk})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 0),
        ("num_attention_heads", -4),
        ("num_key_value_heads", 3),
        ("head_dim", 0),
        ("hidden_size", "64"),
        ("rms_norm_eps", "small"),
        ("rms_norm_eps", float("nan")),
        ("max_position_embeddings", 0.5),
        ("num_hidden_layers", 1 << 30),
        ("num_hidden_layers", True),
        ("rope_parameters", {"rope_theta": 10**400}),
        ("tie_word_embeddings", "yes"),
        ("model_type", ["llama"]),
    ],
)
def test_sizes_that_make_no_sense_are_not_known(field: str, value: object) -> None:
    """Such a config is left to Transformers, which says what is wrong with it."""
    fields = CONFIGS["llama"]().to_dict() | {field: value}

    assert describe(fields) is None
