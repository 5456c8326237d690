"""Writes model folders as GGUF files.

As llama.cpp's converter would, with its own package; so names of tensors are not those of the code
under test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

#: `model_type`: architecture, whether queries and keys are permuted, whether norms have one added.
_KINDS = {
    "llama": ("llama", True, False),
    "mixtral": ("llama", True, False),
    "qwen2": ("qwen2", False, False),
    "qwen3": ("qwen3", False, False),
    "qwen2_moe": ("qwen2moe", False, False),
    "qwen3_moe": ("qwen3moe", False, False),
    "phi3": ("phi3", False, False),
    "gemma": ("gemma", False, True),
    "gemma2": ("gemma2", False, True),
    "gemma3_text": ("gemma3", False, True),
    "granite": ("granite", True, False),
    "gpt_oss": ("gpt-oss", False, False),
    "smollm3": ("smollm3", True, False),
    "mistral": ("mistral3", True, False),
    "ministral3": ("mistral3", True, False),
    "olmo2": ("olmo2", False, False),
    "olmo3": ("olmo2", False, False),
    "exaone4": ("exaone4", False, False),
    "seed_oss": ("seed_oss", False, False),
    "glm4": ("glm4", False, False),
    "ernie4_5": ("ernie4_5", False, False),
    "cohere": ("command-r", False, False),
    "cohere2": ("cohere2", False, False),
}
#: Config fields and the methods of `GGUFWriter` that write them.
_FIELDS = {
    "max_position_embeddings": "add_context_length",
    "hidden_size": "add_embedding_length",
    "intermediate_size": "add_feed_forward_length",
    "num_attention_heads": "add_head_count",
    "num_key_value_heads": "add_head_count_kv",
    "rms_norm_eps": "add_layer_norm_rms_eps",
    "layer_norm_eps": "add_layer_norm_eps",
    "logit_scale": "add_logit_scale",
    "num_hidden_layers": "add_block_count",
    "vocab_size": "add_vocab_size",
    "num_local_experts": "add_expert_count",
    "num_experts": "add_expert_count",
    "num_experts_per_tok": "add_expert_used_count",
    "moe_intermediate_size": "add_expert_feed_forward_length",
    "shared_expert_intermediate_size": "add_expert_shared_feed_forward_length",
    "sliding_window": "add_sliding_window",
    "attn_logit_softcapping": "add_attn_logit_softcapping",
    "final_logit_softcapping": "add_final_logit_softcapping",
    "attention_multiplier": "add_attention_scale",
    "embedding_multiplier": "add_embedding_scale",
    "residual_multiplier": "add_residual_scale",
    "logits_scaling": "add_logit_scale",
}
#: Tensors of all experts at once, as Transformers has those of GPT-OSS.
_FUSED = ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")
_WINDOWED = ("phi3", "gemma2", "gemma3_text", "gpt_oss", "olmo3", "exaone4", "cohere2")
#: Of these the converter tells which layers slide.
_PATTERNED = ("olmo3", "exaone4")


def write_gguf(
    folder: Path,
    file: Path,
    kind: str = "F32",
    *,
    kinds: Mapping[str, str] = MappingProxyType({}),
    part_tensors: int = 0,
    **metadata: int,
) -> Path:
    """Convert the model in `folder`; matrices become `kind`, if their rows are whole blocks.

    Those named in `kinds`, as a GGUF file names those of a layer, become another. With
    `part_tensors`, it becomes several files of so many tensors each; returns the first.
    """
    config = json.loads((folder / "config.json").read_text())
    arch, is_permuted, adds_one = _KINDS[config["model_type"]]
    file.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(file, arch, split_max_tensors=part_tensors)
    _write_config(writer, config)
    _write_vocabulary(writer, folder, config)
    for key, value in metadata.items():
        writer.add_uint32(f"{arch}.{key.replace('__', '.')}", value)
    _write_factors(writer, config)
    arch_id = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(arch_id, config["num_hidden_layers"])
    weights = _parted(load_file(folder / "model.safetensors"))
    for name, tensor in _stacked(weights).items():
        new_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new_name is not None, name
        if is_permuted:
            tensor = _permuted(name, tensor, config)
        own_kind = kinds.get(new_name.split(".")[-2], kind)
        _add(writer, new_name, tensor + (adds_one and name.endswith("norm.weight")), own_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return min(file.parent.glob(f"{file.stem}-*-of-*.gguf")) if part_tensors else file


def _add(writer: gguf.GGUFWriter, name: str, tensor: torch.Tensor, kind: str) -> None:
    data, quant = tensor.float().numpy(), gguf.GGMLQuantizationType[kind]
    block = gguf.GGML_QUANT_SIZES[quant][0]
    is_vector = data.ndim == 1 or name.endswith(".bias")
    if kind == "F32" or is_vector or data.shape[-1] % block:
        writer.add_tensor(name, data)
    else:
        writer.add_tensor(name, gguf.quants.quantize(data, quant), raw_dtype=quant)


def _permuted(name: str, tensor: torch.Tensor, config: Mapping[str, Any]) -> torch.Tensor:
    """Both halves of a head interleaved, since llama.cpp turns neighbours."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    leaf = name.split(".")[-2]
    if leaf not in heads:
        return tensor
    halves = tensor.reshape(config[heads[leaf]], 2, -1, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape).contiguous()


def _parted(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """GPT-OSS's experts, whose outputs come first then, and gates apart from what they multiply."""
    result: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        before, found, leaf = name.rpartition(".mlp.experts.")
        if name.endswith(".sinks"):
            result[f"{name}.weight"] = tensor
        elif not found or leaf not in _FUSED:
            result[name] = tensor
        else:
            kind = "bias" if leaf.endswith("_bias") else "weight"
            rows = tensor.transpose(1, -1) if kind == "weight" else tensor
            parts = (
                {"down": rows} if "down" in leaf else {"gate": rows[:, ::2], "up": rows[:, 1::2]}
            )
            result |= {f"{before}{found}{part}_proj.{kind}": t for part, t in parts.items()}
    return result


def _stacked(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts as one tensor of three dimensions, under the names that the package knows."""
    result: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        before, found, after = name.partition(".experts.")
        if not found or not after[0].isdigit():
            result[name] = tensor[0] if "shared_expert_gate" in name else tensor
        elif (whole := f"{before}.experts.{after.partition('.')[2]}") not in result:
            count = sum(1 for other in weights if other.startswith(f"{before}.experts.")) // 3
            leaf = after.partition(".")[2]
            parts = [weights[f"{before}.experts.{i}.{leaf}"] for i in range(count)]
            result[whole] = torch.stack(parts)
    return result


def _write_config(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    model_type, heads = config["model_type"], config["num_attention_heads"]
    for field, method in _FIELDS.items():
        is_window = field == "sliding_window"
        if config.get(field) is not None and (not is_window or model_type in _WINDOWED):
            getattr(writer, method)(config[field])
    if model_type in _PATTERNED and config["sliding_window"] is not None:
        kinds = config["layer_types"]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
    if model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    _write_rope(writer, config, head_dim)


def _write_rope(writer: gguf.GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    rope = config.get("rope_parameters") or {}
    nested = rope.get("full_attention", rope)
    writer.add_rope_freq_base(nested.get("rope_theta", 10_000.0))
    if "sliding_attention" in rope:
        theta = rope["sliding_attention"]["rope_theta"]
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", theta)
    writer.add_rope_dimension_count(int(head_dim * nested.get("partial_rotary_factor", 1)))
    if nested.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(nested["factor"])
    if nested.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(nested["factor"])
        writer.add_rope_scaling_orig_ctx_len(nested["original_max_position_embeddings"])
        if "llama_4_scaling_beta" in nested:
            writer.add_rope_scaling_yarn_log_mul(nested["mscale_all_dim"])
            writer.add_attn_temperature_scale(nested["llama_4_scaling_beta"])
    if "short_factor" in rope:
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(_longrope_magnitude(config))


def _write_factors(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """What frequencies are divided by, as tensors."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(config, rope))
    for kind in ("short", "long"):
        if factors := rope.get(f"{kind}_factor"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(factors, np.float32))


def _longrope_magnitude(config: Mapping[str, Any]) -> float:
    original = config["original_max_position_embeddings"]
    scale = max(1.0, config["max_position_embeddings"] / original)
    return float(np.sqrt(1 + np.log(scale) / np.log(original)))


def _llama3_factors(config: Mapping[str, Any], rope: Mapping[str, Any]) -> np.ndarray:
    """What frequencies are divided by, of "Llama 3.1" in the converter."""
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    freqs = 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2) / dim))
    old, low, high = (
        rope[name]
        for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    factors = []
    for wavelength in 2 * np.pi / freqs:
        if wavelength < old / high:
            factors.append(1.0)
        elif wavelength > old / low:
            factors.append(rope["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def _write_vocabulary(writer: gguf.GGUFWriter, folder: Path, config: Mapping[str, Any]) -> None:
    """That of the folder, if it is a BPE of bytes, else words that mean nothing."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    path = folder / "tokenizer.json"
    if path.exists():
        tokenizer = json.loads(path.read_text())
        vocab = tokenizer["model"]["vocab"]
        special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        words = sorted((vocab | special).items(), key=lambda item: item[1])
        tokens = [word for word, _ in words]
        writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
        writer.add_chat_template((folder / "chat_template.jinja").read_text())
    else:
        tokens, special = [f"word{i}" for i in range(config["vocab_size"])], {}
        writer.add_token_merges([])
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    eos = config["eos_token_id"]
    writer.add_eos_token_id(eos[0] if isinstance(eos, list) else eos)
