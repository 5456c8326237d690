"""How the lean decoder reads a `config.json`: as Transformers does, or not at all."""

from __future__ import annotations

import pytest
from tiny_models import CONFIGS

from streamwell.engine.families import describe

KNOWN = sorted(CONFIGS.keys() - {"gemma2", "llama3-rope"})


@pytest.mark.parametrize("name", KNOWN)
def test_the_lean_decoder_sees_the_windows_that_transformers_sees(name: str) -> None:
    """Which layers slide, and how far, is read from the config as Transformers reads it."""
    config = CONFIGS[name]()
    spec = describe(config.to_dict())
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None:
        kinds = ["full_attention" if window is None else "sliding_attention"] * 2

    assert spec is not None
    assert tuple(window if k == "sliding_attention" else None for k in kinds) == spec.windows


@pytest.mark.parametrize("name", ["gemma2", "llama3-rope"])
def test_what_is_not_fully_known_is_not_guessed(name: str) -> None:
    """A family or a rotary scaling that the lean decoder lacks runs on Transformers' code."""
    assert describe(CONFIGS[name]().to_dict()) is None


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_config_leaves_out_is_not_guessed(name: str) -> None:
    """A missing field has the default of Transformers' config of the family, or is not known."""
    config = CONFIGS[name]()
    fields = config.to_dict()
    fields.pop("layer_types", None)  # derived from the others, and absent from most folders
    wrong = []
    for left_out in fields.keys() - {"model_type"}:
        rest = {key: value for key, value in fields.items() if key != left_out}
        complete = type(config).from_dict(dict(rest)).to_dict()
        if describe(rest) not in (None, describe(complete)):
            wrong.append(left_out)

    assert [] == sorted(wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 0),
        ("num_attention_heads", -4),
        ("num_key_value_heads", 3),
        ("head_dim", 0),
        ("hidden_size", "64"),
        ("rms_norm_eps", "small"),
        ("max_position_embeddings", 0.5),
    ],
)
def test_sizes_that_make_no_sense_are_not_known(field: str, value: object) -> None:
    """Such a config is left to Transformers, which says what is wrong with it."""
    fields = CONFIGS["llama"]().to_dict() | {field: value}

    assert describe(fields) is None
