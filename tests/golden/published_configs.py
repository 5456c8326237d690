"""What configs on the Hugging Face hub say, in the words of the time when each was written.

Only the fields that describe the model; written down by hand, in sizes of our own.
"""

from __future__ import annotations

from typing import Any

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "vocab_size": 300,
}
_LLAMA: dict[str, Any] = _SIZES | {"hidden_act": "silu", "rms_norm_eps": 1e-5}
_GEMMA: dict[str, Any] = _SIZES | {
    "attention_bias": False,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
_GPT: dict[str, Any] = {k: v for k, v in _SIZES.items() if k != "num_key_value_heads"}

CONFIGS: dict[str, dict[str, Any]] = {
    "Llama 2": _LLAMA
    | {
        "model_type": "llama",
        "pretraining_tp": 1,
        "rope_scaling": None,
        "tie_word_embeddings": False,
    },
    "Llama 3.2": _LLAMA
    | {
        "model_type": "llama",
        "attention_bias": False,
        "head_dim": 16,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 1024,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    "GPT-OSS": _LLAMA
    | {
        "model_type": "gpt_oss",
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": 2,
        "experts_per_token": 2,
        "head_dim": 16,
        "initial_context_length": 1024,
        "layer_types": ["sliding_attention", "full_attention"] * 4,
        "num_experts_per_tok": 2,
        "num_local_experts": 4,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
    },
    "Qwen2.5": _LLAMA
    | {
        "model_type": "qwen2",
        "max_window_layers": 6,
        "rope_theta": 1000000.0,
        "sliding_window": 2048,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "Qwen2.5, longer": _LLAMA
    | {
        "model_type": "qwen2",
        "max_window_layers": 6,
        "rope_scaling": {
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "type": "yarn",
        },
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
    "Qwen3": _LLAMA
    | {
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 32,
        "max_window_layers": 8,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "Qwen1.5-MoE": _LLAMA
    | {
        "model_type": "qwen2_moe",
        "decoder_sparse_step": 1,
        "max_window_layers": 6,
        "moe_intermediate_size": 32,
        "norm_topk_prob": False,
        "num_experts": 8,
        "num_experts_per_tok": 4,
        "rope_theta": 1000000.0,
        "shared_expert_intermediate_size": 64,
        "sliding_window": 2048,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    "Qwen3-MoE": _LLAMA
    | {
        "model_type": "qwen3_moe",
        "decoder_sparse_step": 1,
        "head_dim": 16,
        "max_window_layers": 8,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    "Mistral": _LLAMA
    | {
        "model_type": "mistral",
        "rope_theta": 10000.0,
        "sliding_window": 1024,
        "tie_word_embeddings": False,
    },
    "Mixtral": _LLAMA
    | {
        "model_type": "mixtral",
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.02,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "Gemma": _GEMMA | {"model_type": "gemma", "hidden_act": "gelu", "rope_scaling": None},
    "Gemma 2": _GEMMA
    | {
        "model_type": "gemma2",
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "sliding_window": 1024,
    },
    "Gemma 3 1B": _GEMMA
    | {
        "model_type": "gemma3_text",
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 16,
        "rope_local_base_freq": 10000,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "rope_theta": 1000000,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "Phi-2": _GPT
    | {
        "model_type": "phi",
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
        "num_key_value_heads": 4,
        "partial_rotary_factor": 0.5,
        "qk_layernorm": False,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    },
    "Phi-3-mini-4k": _LLAMA
    | {
        "model_type": "phi3",
        "original_max_position_embeddings": 4096,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": 2047,
        "tie_word_embeddings": False,
    },
    "Phi-4-mini": _LLAMA
    | {
        "model_type": "phi3",
        "attention_bias": False,
        "original_max_position_embeddings": 1024,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "long_factor": [1.5] * 6,
            "short_factor": [1.0] * 6,
            "type": "longrope",
        },
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "OLMo 2": _LLAMA
    | {
        "model_type": "olmo2",
        "attention_bias": False,
        "rope_scaling": None,
        "rope_theta": 500000,
        "tie_word_embeddings": False,
    },
    "GPT-2": {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_ctx": 1024,
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 8,
        "n_positions": 1024,
        "vocab_size": 300,
    },
    "Pythia": _GPT
    | {
        "model_type": "gpt_neox",
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "use_parallel_residual": True,
    },
    "Falcon 7B": {
        "model_type": "falcon",
        "alibi": False,
        "bias": False,
        "hidden_size": 64,
        "layer_norm_epsilon": 1e-5,
        "multi_query": True,
        "new_decoder_architecture": False,
        "num_attention_heads": 4,
        "num_hidden_layers": 8,
        "num_kv_heads": 4,
        "parallel_attn": True,
        "vocab_size": 300,
    },
    "StarCoder2": _SIZES
    | {
        "model_type": "starcoder2",
        "hidden_act": "gelu_pytorch_tanh",
        "mlp_type": "default",
        "norm_epsilon": 1e-5,
        "norm_type": "layer_norm",
        "rope_theta": 999999.4420358813,
        "sliding_window": 4096,
        "use_bias": True,
    },
    "Granite": _LLAMA
    | {
        "model_type": "granite",
        "attention_bias": False,
        "attention_multiplier": 0.0625,
        "embedding_multiplier": 12.0,
        "logits_scaling": 8.0,
        "mlp_bias": False,
        "residual_multiplier": 0.22,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "tie_word_embeddings": True,
    },
    "SmolLM3": _LLAMA
    | {
        "model_type": "smollm3",
        "attention_bias": False,
        "max_window_layers": 28,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0],
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
}
