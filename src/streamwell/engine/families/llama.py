"""Families whose blocks are Llama's but for a detail or two."""

from __future__ import annotations

from dataclasses import replace

from streamwell.engine.families.family import (
    FULL,
    SLIDING,
    Family,
    decoder_spec,
    even_head_dim,
    head_dim_of,
    kinds_of,
    windows_of,
)
from streamwell.engine.families.fields import Fields, number, require
from streamwell.engine.families.rope import read_rope
from streamwell.engine.families.spec import DecoderSpec

# --- Llama 2 and 3, SmolLM, and many others that took over the block ---


def _llama(fields: Fields) -> DecoderSpec:
    require(fields.get("pretraining_tp") in (1, None))
    return decoder_spec(fields)


LLAMA = Family(
    read=_llama,
    defaults={
        "num_key_value_heads": None,
        "head_dim": None,
        "tie_word_embeddings": False,
        "pretraining_tp": 1,
    },
)

# --- Mistral: a sliding window in all layers, or none ---


def _mistral(fields: Fields) -> DecoderSpec:
    require(fields.given("layer_types") is None)
    return decoder_spec(fields, windows=same_window(fields))


def same_window(fields: Fields) -> list[int | None]:
    """One sliding window for all layers, which may be null."""
    return [fields.optional_size("sliding_window")] * fields.num_layers


MISTRAL = Family(read=_mistral, defaults={"head_dim": None, "tie_word_embeddings": False})

# --- Qwen2: biases of queries, keys and values; only the upper layers slide ---


def _qwen2(fields: Fields) -> DecoderSpec:
    return decoder_spec(fields, windows=_qwen_windows(fields))


def _qwen_windows(fields: Fields) -> list[int | None]:
    num_layers = fields.num_layers
    if not fields.flag("use_sliding_window"):
        return [None] * num_layers
    first = fields.get("max_window_layers")
    require(type(first) is int)
    kinds = kinds_of(fields, [SLIDING if i >= first else FULL for i in range(num_layers)])
    return windows_of(kinds, fields)


_QWEN_DEFAULTS = {
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
QWEN2 = Family(read=_qwen2, defaults=_QWEN_DEFAULTS | {"head_dim": None})

# --- Qwen3: no biases, norms of queries and keys ---


def _qwen3(fields: Fields) -> DecoderSpec:
    return replace(_qwen2(fields), qk_norm="head")


QWEN3 = Family(read=_qwen3, defaults=_QWEN_DEFAULTS)

# --- Phi-3 and Phi-4: fused projections, LongRoPE ---


def _phi3(fields: Fields) -> DecoderSpec:
    head_dim = even_head_dim(fields)
    rope = read_rope(fields, head_dim, part=1.0)
    require(not rope.stretched_to)  # what its configs have called YaRN was LongRoPE
    ropes = [rope] * fields.num_layers
    return decoder_spec(fields, head_dim=head_dim, ropes=ropes, windows=same_window(fields))


PHI3 = Family(
    read=_phi3,
    defaults={
        "num_key_value_heads": None,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "original_max_position_embeddings": 4096,
    },
)

# --- Granite: four multipliers ---


def _granite(fields: Fields) -> DecoderSpec:
    return replace(
        decoder_spec(fields),
        embedding_multiplier=fields.number("embedding_multiplier"),
        residual_multiplier=fields.number("residual_multiplier"),
        attention_scale=fields.number("attention_multiplier"),
        logits_divisor=fields.number("logits_scaling"),
    )


GRANITE = Family(
    read=_granite,
    defaults={"num_key_value_heads": None, "head_dim": None, "tie_word_embeddings": False},
)

# --- Seed-OSS: biases of queries, keys and values ---

SEED_OSS = Family(
    read=_llama,
    defaults={
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
        "pretraining_tp": 1,
    },
)

# --- Ministral 3: YaRN, and beyond the original context a factor of queries ---


def _ministral3(fields: Fields) -> DecoderSpec:
    spec, given = _mistral(fields), fields.get("rope_parameters")
    require(isinstance(given, dict) and fields.given("rope_scaling") is None)
    number(given.get("llama_4_scaling_beta"))
    original = given.get("original_max_position_embeddings")
    require(type(original) is int and original > 0)
    return replace(spec, max_position_embeddings=min(spec.max_position_embeddings, original))


MINISTRAL3 = Family(
    read=_ministral3,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
)

# --- SmolLM3: every fourth layer has no rotary embeddings ---


def _smollm3(fields: Fields) -> DecoderSpec:
    num_layers, interval = fields.num_layers, fields.size("no_rope_layer_interval")
    turns = fields.get("no_rope_layers")  # in spite of its name, 1 stands for layers with them
    if turns is None:
        turns = [int((i + 1) % interval != 0) for i in range(num_layers)]
    require(isinstance(turns, list) and len(turns) == num_layers)
    require(all(turn in (0, 1) for turn in turns))
    slides = fields.flag("use_sliding_window") and fields.get("sliding_window") is not None
    kinds = kinds_of(fields, [SLIDING if slides and not turn else FULL for turn in turns])
    require(slides or SLIDING not in kinds)
    rope = read_rope(fields, head_dim_of(fields), theta=2e6)
    return decoder_spec(
        fields,
        ropes=[rope if turn else None for turn in turns],
        windows=windows_of(kinds, fields) if slides else None,
    )


SMOLLM3 = Family(
    read=_smollm3,
    defaults={
        "head_dim": None,
        "tie_word_embeddings": True,
        "no_rope_layers": None,
        "no_rope_layer_interval": 4,
        "use_sliding_window": False,
        "sliding_window": None,
        "layer_types": None,
    },
)
