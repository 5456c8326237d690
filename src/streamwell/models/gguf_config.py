"""Writes the `config.json` and `generation_config.json` that a GGUF file stands for.

Nothing is guessed, and nothing left out: a key that is not understood could change the model, as
rotary scalings do, which Transformers' own reading of such files leaves aside.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError
from streamwell.models.gguf_architectures import (
    ARCHITECTURES,
    FIELDS,
    Architecture,
    architecture_of,
)
from streamwell.models.gguf_parts import GgufModel

#: Says nothing of how the model computes.
_HARMLESS = frozenset({"rope.scaling.finetuned", "tensor_data_layout", "vocab_size"})
#: What all of these architectures do anyway: true, softmax, and dense models without experts.
_USUAL = {
    ("attention.causal", True),
    ("expert_gating_func", 1),
    ("expert_count", 0),
    ("expert_used_count", 0),
}
#: Layers of the largest Gemma 2 and 3, whose attention has another scale; no key says so.
_LARGEST_GEMMA = {"gemma2": 46, "gemma3_text": 62}
#: Tokens that end an answer, as llama.cpp takes them, beside the one that the file calls so.
_ENDS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>"}
)
#: Of GPT-OSS's answers, which are several messages; each of those ends with `<|end|>`.
_HARMONY_ENDS = frozenset({"<|return|>", "<|call|>"})
#: One for each head of queries; and models of experts alone.
_OPTIONAL = ("attention.head_count_kv", "feed_forward_length")
_MAX_FACTORS, _MAX_LAYERS = 4096, 10_000
#: Some layers slide, and some see everything.
_OF_TWO_KINDS = frozenset({"cohere2", "exaone4", "gemma2", "gemma3_text", "gpt_oss", "olmo3"})


def config_of(model: GgufModel) -> dict[str, Any]:
    """What `config.json` would say.

    Raises:
        LoadError: the architecture is not known, or something is missing or not understood.
    """
    file, metadata = model.file, model.metadata
    name = str(metadata.get("general.architecture", ""))
    embedding = model.tensors.get("token_embd.weight")
    if not name or embedding is None:
        raise LoadError(f"{file} holds no language model: it has no architecture or no embeddings")
    keys = _Keys(file, name, metadata)
    architecture = architecture_of(metadata)
    if architecture is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise LoadError(
            f"{file} is of the architecture {name!r:.40}; as GGUF files {known} are served. Use "
            "the same model as safetensors"
        )
    optional, kinds = {*_OPTIONAL, *architecture.lacks}, _kinds(architecture, keys)
    config = {
        "model_type": architecture.model_type,
        **architecture.constants,
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in model.tensors,
        "dtype": dtype_of(model),
        **{f: keys.take(key) for key, f in FIELDS.items() if keys.has(key) or key not in optional},
        **{field: keys.take(key) for key, field in architecture.fields.items() if keys.has(key)},
    }
    config |= _attention(architecture, keys, config)
    config |= kinds
    config |= _rope(architecture, keys, config, model)
    keys.require_none_left()
    return config


def generation_config_of(model: GgufModel) -> dict[str, Any]:
    """What `generation_config.json` would say: which tokens end an answer."""
    return {"eos_token_id": end_ids(model.metadata)}


def end_ids(metadata: Mapping[str, Any]) -> list[int]:
    """The tokens that end an answer, whatever kind the file says that they are of."""
    ids = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    if isinstance(tokens, tuple):
        if set(tokens) >= _HARMONY_ENDS:
            return [i for i, token in enumerate(tokens) if token in _HARMONY_ENDS]
        ids += [i for i, token in enumerate(tokens) if token in _ENDS]
    return sorted({i for i in ids if type(i) is int})


def dtype_of(model: GgufModel) -> str:
    """What the numbers are computed in where nothing else is asked for."""
    is_single = all(tensor.dtype == "F32" for tensor in model.tensors.values())
    return "float32" if is_single else "bfloat16"


class _Keys:
    """The values of an architecture; each is taken once."""

    def __init__(self, file: Path, name: str, metadata: Mapping[str, Any]) -> None:
        self.file, self.name = file, name
        prefix = f"{name}."
        self.values = {
            k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)
        }

    def has(self, key: str) -> bool:
        return key in self.values

    def take(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - as the file has it
        value = self.values.pop(key, default)
        if value is None or isinstance(value, tuple | bool):
            raise LoadError(f"{self.file}: {self.name}.{key} is missing, or no number or text")
        return value

    def take_number(self, key: str, default: float) -> float:
        value = self.take(key, default)
        if isinstance(value, str) or not math.isfinite(value):
            raise LoadError(f"{self.file}: {self.name}.{key} is no number")
        return float(value)

    def require_none_left(self) -> None:
        left = sorted({k for k, v in self.values.items() if (k, v) not in _USUAL} - _HARMLESS)
        if left:
            raise LoadError(
                f"{self.file} says {self.name}.{left[0]}, which is not understood; without it the "
                "model would be another. Use the same model as safetensors"
            )


def _attention(
    architecture: Architecture, keys: _Keys, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The size of heads, and what Gemma does with it."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if type(hidden) is not int or type(heads) is not int or heads < 1:
        raise LoadError(f"{keys.file}: embedding_length or attention.head_count is no size")
    head_dim = keys.take("attention.key_length", hidden // heads)
    if keys.take("attention.value_length", head_dim) != head_dim:
        raise LoadError(f"{keys.file} has keys and values of different lengths")
    fields: dict[str, Any] = {"head_dim": head_dim}
    fields["num_key_value_heads"] = config.get("num_key_value_heads", heads)
    if architecture.model_type in _LARGEST_GEMMA:
        is_largest = config.get("num_hidden_layers") == _LARGEST_GEMMA[architecture.model_type]
        fields["query_pre_attn_scalar"] = hidden // heads if is_largest else head_dim
    if config.get("sliding_window") == 0:
        fields["sliding_window"] = None
    return fields


def _kinds(architecture: Architecture, keys: _Keys) -> dict[str, Any]:
    """Which layers slide, where the file tells it of each; and where it says that none does."""
    key, num_layers = "attention.sliding_window_pattern", keys.values.get("block_count")
    slides = keys.values.get(key)
    if isinstance(slides, tuple) and architecture.model_type in _OF_TWO_KINDS:
        keys.values.pop(key)
        if len(slides) != num_layers or any(type(each) is not bool for each in slides):
            raise LoadError(f"{keys.file}: {keys.name}.{key} must say of each layer if it slides")
        return {"layer_types": ["sliding_attention" if s else "full_attention" for s in slides]}
    if architecture.model_type == "exaone4" and not keys.values.get("attention.sliding_window"):
        count = num_layers if type(num_layers) is int and 0 < num_layers < _MAX_LAYERS else 0
        return {"layer_types": ["full_attention"] * count}
    return {}


def _rope(
    architecture: Architecture, keys: _Keys, config: Mapping[str, Any], model: GgufModel
) -> dict[str, Any]:
    """Rotary embeddings, of all of a head or a part of it."""
    fields: dict[str, Any] = {"rope_theta": keys.take("rope.freq_base", 10_000.0)}
    head_dim = config["head_dim"]
    dim = keys.take("rope.dimension_count", head_dim)
    if dim != head_dim:
        if not architecture.turns_partly or type(dim) is not int or not 0 < dim < head_dim:
            raise LoadError(f"{keys.file}: {dim} elements of a head turn, and not all {head_dim}")
        fields["partial_rotary_factor"] = dim / head_dim
    return _arranged(architecture, keys, fields | _scaling(architecture, keys, config, model))


def _arranged(architecture: Architecture, keys: _Keys, rope: Mapping[str, Any]) -> dict[str, Any]:
    """As configs of the family have it; all but two know its older form."""
    theta, scaling = rope["rope_theta"], rope.get("rope_scaling", {"rope_type": "default"})
    rest = {k: v for k, v in rope.items() if k not in ("rope_theta", "rope_scaling")}
    whole = {"rope_theta": theta, **scaling}
    if architecture.model_type == "ministral3":
        beta = keys.take("attention.temperature_scale")
        return {**rest, "rope_parameters": whole | {"llama_4_scaling_beta": beta}}
    if architecture.model_type == "olmo3":
        sliding = {"rope_type": "default", "rope_theta": keys.take("rope.freq_base_swa", theta)}
        by_kind = {"full_attention": whole, "sliding_attention": sliding}
        return {**rest, "rope_parameters": by_kind}
    return dict(rope)


def _scaling(
    architecture: Architecture, keys: _Keys, config: Mapping[str, Any], model: GgufModel
) -> dict[str, Any]:
    """How rotary embeddings are scaled, in one of four ways or not at all."""
    kind = keys.take("rope.scaling.type", "none")
    factor = keys.take_number("rope.scaling.factor", 1.0)
    factor = keys.take_number("rope.scale_linear", factor)
    trained = config["max_position_embeddings"]
    original = keys.take("rope.scaling.original_context_length", trained)
    attention_factor = keys.take_number("rope.scaling.attn_factor", 1.0)
    short = _factors(model, "rope_factors_short.weight")
    freqs = _factors(model, "rope_freqs.weight")
    if short or freqs:
        long = _factors(model, "rope_factors_long.weight")
        scaling = {
            "rope_type": "longrope",
            "short_factor": short or freqs,
            "long_factor": long or freqs,
            "attention_factor": attention_factor,
        }
        # Llama 3.1 and later: the same factors for every position
        original = trained if freqs else original
        return {"original_max_position_embeddings": original, "rope_scaling": scaling}
    if kind == "yarn":
        scaling = {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            **_yarn(architecture, keys, factor, attention_factor),
            **architecture.rope_scaling,
        }
        return {"rope_scaling": scaling}
    if kind == "linear" or (kind == "none" and factor != 1):
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    if kind != "none":
        raise LoadError(f"{keys.file}: rotary embeddings with scaling {kind!r} are not known here")
    return {}


def _yarn(
    architecture: Architecture, keys: _Keys, factor: float, attention_factor: float
) -> dict[str, float]:
    """YaRN as llama.cpp reads it, and where it slows down as converters write that.

    A share of YaRN (`yarn_ext_factor`) that is not all of it is left over. So is
    `yarn_attn_factor`, unless it is what follows anyway: converters mean all of the factor by it,
    llama.cpp does not read it for these architectures.
    """
    if keys.values.get("rope.scaling.yarn_ext_factor") == 1:
        keys.take("rope.scaling.yarn_ext_factor")
    growth = 0.1 * math.log(max(factor, 1.0))
    attention_factor *= 1 + growth
    if architecture.model_type == "ministral3":
        attention_factor /= 1 + growth * keys.take_number("rope.scaling.yarn_log_multiplier", 0.0)
    told = keys.values.get("rope.scaling.yarn_attn_factor")
    if isinstance(told, float) and math.isclose(told, attention_factor, rel_tol=1e-5):
        keys.take("rope.scaling.yarn_attn_factor")
    return {
        "attention_factor": attention_factor,
        "beta_fast": keys.take_number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": keys.take_number("rope.scaling.yarn_beta_slow", 1.0),
    }


def _factors(model: GgufModel, name: str) -> list[float]:
    """The numbers of a small tensor, which belong in a config."""
    tensor = model.tensors.get(name)
    if tensor is None:
        return []
    if tensor.dtype != "F32" or tensor.num_elements > _MAX_FACTORS:
        raise LoadError(f"{model.file} has factors of rotary embeddings in an odd type or number")
    return list(struct.unpack(f"<{tensor.num_elements}f", model.read(name)))
