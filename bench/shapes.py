"""The shapes of the models that are measured, under Transformers' names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's dimensions, under Transformers' names."""

    model_type: str
    tokenizer_size: int
    config: Mapping[str, Any]


SHAPES = {
    # Qwen2.5-0.5B, 494 M parameters
    "qwen05": Shape(
        "qwen2",
        16000,
        {
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
        },
    ),
    # Qwen2.5-1.5B
    "qwen15": Shape(
        "qwen2",
        16000,
        {
            "vocab_size": 151936,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
        },
    ),
    # SmolLM-135M
    "smol135": Shape(
        "llama",
        16000,
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e5,
        },
    ),
    # for trying the benchmarks themselves; its figures mean nothing
    "tiny": Shape(
        "llama",
        2000,
        {
            "vocab_size": 2048,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
        },
    ),
    # Qwen3-0.6B with 20 of its 28 layers, 470 M
    "qwen3-470": Shape(
        "qwen3",
        16000,
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "rope_theta": 1e6,
        },
    ),
    # Phi-3 in the size of the others; the smallest real one has 3.8 B
    "phi300": Shape(
        "phi3",
        16000,
        {
            "vocab_size": 32064,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096,
            "sliding_window": 2047,
        },
    ),
    # GPT-2, 124 M parameters
    "gpt2": Shape(
        "gpt2",
        16000,
        {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    ),
    # Pythia-410M, with tied embeddings 354 M
    "pythia410": Shape(
        "gpt_neox",
        16000,
        {
            "vocab_size": 50304,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "max_position_embeddings": 2048,
        },
    ),
    # Gemma 3 270M
    "gemma270": Shape(
        "gemma3_text",
        16000,
        {
            "vocab_size": 262144,
            "hidden_size": 640,
            "intermediate_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "max_position_embeddings": 32768,
            "sliding_window": 512,
        },
    ),
    # Gemma 2 in the size of its successor; the smallest real one has 2.6 B
    "gemma2-300": Shape(
        "gemma2",
        16000,
        {
            "vocab_size": 256000,
            "hidden_size": 640,
            "intermediate_size": 2560,
            "num_hidden_layers": 20,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 160,
            "query_pre_attn_scalar": 160,
            "max_position_embeddings": 8192,
        },
    ),
    # OLMo 2 in the size of Pythia-410M; the smallest real one has 1.5 B
    "olmo400": Shape(
        "olmo2",
        16000,
        {
            "vocab_size": 100352,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 18,
            "num_attention_heads": 16,
            "max_position_embeddings": 4096,
        },
    ),
    # ERNIE 4.5 0.3B
    "ernie300": Shape(
        "ernie4_5",
        16000,
        {
            "vocab_size": 103424,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 18,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "max_position_embeddings": 8192,
        },
    ),
    # EXAONE 4 with a quarter of the width of its 1.2B
    "exaone400": Shape(
        "exaone4",
        16000,
        {
            "vocab_size": 102400,
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "num_hidden_layers": 30,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
        },
    ),
    # GLM-4-0414 in the size of the others; the smallest real one has 9 B
    "glm400": Shape(
        "glm4",
        16000,
        {
            "vocab_size": 151552,
            "hidden_size": 1024,
            "intermediate_size": 3424,
            "num_hidden_layers": 18,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "max_position_embeddings": 8192,
        },
    ),
    # Command R7B in the size of the others
    "cohere400": Shape(
        "cohere2",
        16000,
        {
            "vocab_size": 128000,
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_hidden_layers": 18,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 8192,
        },
    ),
    # Granite in the size of the others; the smallest real one has 2 B
    "granite350": Shape(
        "granite",
        16000,
        {
            "vocab_size": 100352,
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.015625,
            "logits_scaling": 4.0,
        },
    ),
    # StarCoder2 in the size of Pythia-410M; the smallest real one has 3 B
    "starcoder400": Shape(
        "starcoder2",
        16000,
        {
            "vocab_size": 49152,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 26,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "max_position_embeddings": 16384,
            "sliding_window": 4096,
        },
    ),
    # Qwen3-30B-A3B with half of its width, half of its experts and a quarter of its layers
    "qwen3moe1500": Shape(
        "qwen3_moe",
        16000,
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "head_dim": 128,
            "moe_intermediate_size": 512,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 8192,
        },
    ),
    # Qwen1.5-MoE with a third of its width; 4 of 32 experts and the shared one compute
    "qwenmoe400": Shape(
        "qwen2_moe",
        16000,
        {
            "vocab_size": 151936,
            "hidden_size": 768,
            "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 1024,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "max_position_embeddings": 8192,
        },
    ),
}
