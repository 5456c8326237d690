"""Which model families the lean decoder knows, and how their configs and weights map onto it.

A family is one section of a file here and a golden test against Transformers. Whatever is not
understood completely is not guessed: `describe` says no, and the model runs on Transformers' code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from streamwell.engine.families import layouts
from streamwell.engine.families.family import Family
from streamwell.engine.families.fields import Fields, NotKnownError
from streamwell.engine.families.gemma import GEMMA, GEMMA2, GEMMA3
from streamwell.engine.families.gpt import FALCON, GPT2, GPT_NEOX, PHI, STARCODER2
from streamwell.engine.families.layouts import CanonicalWeights, Layout
from streamwell.engine.families.llama import (
    GRANITE,
    LLAMA,
    MINISTRAL3,
    MISTRAL,
    PHI3,
    QWEN2,
    QWEN3,
    SEED_OSS,
    SMOLLM3,
)
from streamwell.engine.families.mixtures import GPT_OSS, MIXTRAL, QWEN2_MOE, QWEN3_MOE
from streamwell.engine.families.neighbours import COHERE, COHERE2, ERNIE4_5, GLM, GLM4
from streamwell.engine.families.outputs import EXAONE4, OLMO2, OLMO3
from streamwell.engine.families.pictures import NAMES, OTHERS, PICTURES, decoder_config
from streamwell.engine.families.shapes import check_shapes, places
from streamwell.engine.families.spec import DecoderSpec, Experts, Rope
from streamwell.engine.saved_weights import SavedWeights
from streamwell.models.outline import POSITIONS, UNBOUNDED

__all__ = [
    "FAMILIES",
    "CanonicalWeights",
    "DecoderSpec",
    "Experts",
    "Rope",
    "canonical_rows",
    "canonical_weights",
    "check_shapes",
    "decoder_config",
    "describe",
    "max_positions",
    "missed_biases",
    "places",
    "with_saved_head",
]

#: By the `model_type` of their configs.
FAMILIES: Mapping[str, Family] = {
    "cohere": COHERE,
    "cohere2": COHERE2,
    "ernie4_5": ERNIE4_5,
    "exaone4": EXAONE4,
    "falcon": FALCON,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "glm": GLM,
    "glm4": GLM4,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "gpt_oss": GPT_OSS,
    "granite": GRANITE,
    "llama": LLAMA,
    "ministral3": MINISTRAL3,
    "mistral": MISTRAL,
    "mixtral": MIXTRAL,
    "olmo2": OLMO2,
    "olmo3": OLMO3,
    "phi": PHI,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen2_moe": QWEN2_MOE,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "seed_oss": SEED_OSS,
    "smollm3": SMOLLM3,
    "starcoder2": STARCODER2,
}


def describe(config: Mapping[str, Any]) -> DecoderSpec | None:
    """The spec of a model from its `config.json`, or `None` if it is not known completely."""
    config = decoder_config(config)
    model_type = config.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        return None
    rounding = config.get("quantization_config")
    if isinstance(rounding, dict) and rounding.get("quant_method") in family.rounded_by:
        config = {key: value for key, value in config.items() if key != "quantization_config"}
    try:
        return family.read(Fields(config, family.defaults, family.names))
    except NotKnownError:
        return None


def max_positions(config: Mapping[str, Any]) -> int | None:
    """How many positions a model of any family can be asked for; `None` if nothing says so."""
    if config.get("model_type") in UNBOUNDED:
        return None
    spec = describe(config)
    if spec is not None:
        return spec.max_position_embeddings
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    limits = [next((config[name] for name in POSITIONS if config.get(name)), None)]
    ropes = [rope, *(nested for nested in rope.values() if isinstance(nested, dict))]
    if any(map(_is_longrope, ropes)):
        # beyond it a sequence would turn in another way, and its neighbours with it
        limits += [c.get("original_max_position_embeddings") for c in (config, *ropes)]
    return min((limit for limit in limits if limit), default=None)


def _is_longrope(rope: Mapping[str, Any]) -> bool:
    """By whatever name: Phi-3's configs have called it `su`, and `yarn`."""
    return rope.get("rope_type", rope.get("type")) in ("longrope", "su") or "long_factor" in rope


def canonical_weights(
    config: Mapping[str, Any], spec: DecoderSpec, weights: SavedWeights
) -> CanonicalWeights:
    """The weights of a model that `describe` knows, under Llama's names and in Llama's layouts.

    Raises:
        RuntimeError: a tensor cannot be divided as the spec says.
    """
    return CanonicalWeights(weights, _layout(config), spec)


def _layout(config: Mapping[str, Any]) -> Layout:
    inner = decoder_config(config)
    layout = FAMILIES[inner["model_type"]].layout
    layout = replace(layout, unused=tuple(_unused_biases(inner)))
    if config["model_type"] not in PICTURES:
        return layout
    return replace(layout, names=(*NAMES, *layout.names), others=OTHERS)


def _unused_biases(config: Mapping[str, Any]) -> Iterator[str]:
    """Biases that a config switches off: Transformers leaves them out though they are saved."""
    if config.get("attention_bias") is False:
        yield r"\.self_attn\.[qkv]_proj\.bias$"
    if config.get("attention_out_bias", config.get("attention_bias")) is False:
        yield r"\.self_attn\.o_proj\.bias$"
    if config.get("mlp_bias") is False:
        yield r"\.mlp\..*_proj\.bias$"
    if config.get("use_bias") is False:
        yield r"_proj\.bias$"


#: A layer that has a bias where the config says so.
_BIASES = {
    "attention_bias": "model.layers.0.self_attn.q_proj",
    "mlp_bias": "model.layers.0.mlp.up_proj",
}


def missed_biases(config: Mapping[str, Any], weights: CanonicalWeights) -> list[str]:
    """Flags of a config by which there are biases, while the weights have none of them.

    Transformers would take zeros, as our decoders do.
    """
    inner = decoder_config(config)
    return [
        flag
        for flag, layer in _BIASES.items()
        if inner.get(flag) is True
        and f"{layer}.weight" in weights
        and f"{layer}.bias" not in weights
    ]


def with_saved_head(spec: DecoderSpec, weights: CanonicalWeights) -> DecoderSpec:
    """The spec with the output layer that the files have, whatever the config says of it.

    As Transformers does it: a head that is saved with other numbers than the embeddings is not
    tied to them, and one that is saved in their place stands for both. A bias is the head's alone.
    """
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    if not spec.tie_word_embeddings or (embedding not in weights and head not in weights):
        return spec
    if embedding not in weights:
        weights.share(head, embedding)
    is_tied = head not in weights or torch.equal(weights[embedding], weights[head])
    if "lm_head.bias" in weights:
        if head not in weights:
            weights.share(embedding, head)
        is_tied = False
    return replace(spec, tie_word_embeddings=is_tied)


def canonical_rows(
    config: Mapping[str, Any], spec: DecoderSpec, name: str, rows: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The same for `[out_features, n]` of one linear layer, whatever the `n` numbers are.

    Names are those of layers, without `.weight`; a layer that fuses several gives one entry each.

    Raises:
        RuntimeError: the outputs cannot be divided as the spec says.
    """
    layout = replace(_layout(config), is_transposed=False)
    named = layouts.canonical({f"{name}.weight": rows}, layout, spec)
    return {ours.removesuffix(".weight"): part for ours, part in named.items()}
