"""Tiny models with random weights, as folders in the Hugging Face layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from streamwell.models import brooklet_path

VOCAB_SIZE, MAX_POSITIONS = 300, 128
#: Smaller than most prompts of the tests.
WINDOW = 8

_COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _config(kind: type[PreTrainedConfig], **changes: Any) -> Callable[[], PreTrainedConfig]:  # noqa: ANN401
    return lambda: kind(**{**_COMMON, **changes})


_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": _config(LlamaConfig),
    "llama-biases-tied": _config(
        LlamaConfig,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
        num_key_value_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "llama3-rope": _config(LlamaConfig, rope_parameters=_LLAMA3_ROPE),
    "qwen2": _config(Qwen2Config, num_key_value_heads=1),
    "qwen2-window": _config(
        Qwen2Config, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3-tied": _config(Qwen3Config, head_dim=32, tie_word_embeddings=True),
    "qwen3-odd": _config(Qwen3Config, head_dim=24),
    "mistral-window": _config(MistralConfig, sliding_window=WINDOW),
    "mistral-no-window": _config(MistralConfig, sliding_window=None),
    "gemma2": _config(Gemma2Config, head_dim=16, query_pre_attn_scalar=16),
}


def build(name: str, folder: Path) -> Path:
    """Write the model of this name into a folder; the same weights every time."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[name]())
    with torch.no_grad():
        for parameter in model.parameters():
            # large, and biases and norms too, so that a mistake anywhere shows in the tokens
            torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.2)
    model.save_pretrained(folder)
    return folder


def folder_of(name: str, tmp_path: Path) -> Path:
    """The folder of a tiny model, built now, or of the model in the box."""
    return brooklet_path() if name == "brooklet" else build(name, tmp_path)
