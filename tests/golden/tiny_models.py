"""Tiny models with random weights, as folders in the Hugging Face layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Cohere2Config,
    CohereConfig,
    DeepseekV3Config,
    Ernie4_5Config,
    Exaone4Config,
    FalconConfig,
    FalconH1Config,
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GlmConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeHybridConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    Mamba2Config,
    Ministral3Config,
    Mistral3Config,
    MistralConfig,
    MixtralConfig,
    NemotronHConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoHybridConfig,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    PreTrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLTextConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3_5Config,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    Qwen3VLConfig,
    Qwen3VLTextConfig,
    SeedOssConfig,
    SmolLM3Config,
    Starcoder2Config,
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

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5],
    "long_factor": [4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    "partial_rotary_factor": 0.75,
}
_EXPERTS: dict[str, Any] = {
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}

_GEMMA3: dict[str, Any] = {
    "head_dim": 16,
    "query_pre_attn_scalar": 20,
    "sliding_window": WINDOW,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}
_MINISTRAL3: dict[str, Any] = {
    "head_dim": 32,
    "rope_parameters": _YARN
    | {
        "original_max_position_embeddings": 64,
        "llama_4_scaling_beta": 0.1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
#: Three of four layers keep a state by the gated delta rule.
_GATED_DELTA: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
#: Mamba-2, of twice as many inner elements as there are outside.
_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
}
#: Elements of a head that turn by time, height and width of a picture; text has one for all.
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
#: Of the part that sees.
_SIGHT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def _sees(
    kind: type[PreTrainedConfig],
    text: type[PreTrainedConfig],
    **changes: Any,  # noqa: ANN401
) -> Callable[[], PreTrainedConfig]:
    """A decoder with something that sees beside it, and an output layer of its own or not."""
    ties = changes.get("tie_word_embeddings", False)
    return lambda: kind(
        text_config=_config(text, **changes)().to_dict(),
        vision_config=_SIGHT,
        tie_word_embeddings=ties,
    )


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
    "llama-yarn": _config(LlamaConfig, rope_parameters=_YARN),
    "llama-linear-rope": _config(
        LlamaConfig,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
    ),
    "qwen2": _config(Qwen2Config, num_key_value_heads=1),
    "qwen2-window": _config(
        Qwen2Config, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3-tied": _config(Qwen3Config, head_dim=32, tie_word_embeddings=True),
    "qwen3-odd": _config(Qwen3Config, head_dim=24),
    "qwen2-moe": _config(
        Qwen2MoeConfig,
        **_EXPERTS,
        num_experts=4,
        shared_expert_intermediate_size=48,
        use_sliding_window=True,
        sliding_window=WINDOW,
        num_hidden_layers=3,
        mlp_only_layers=[1],
    ),
    "qwen3-moe": _config(
        Qwen3MoeConfig, **_EXPERTS, num_experts=6, head_dim=16, decoder_sparse_step=2
    ),
    "mistral-window": _config(MistralConfig, sliding_window=WINDOW),
    "mistral-no-window": _config(MistralConfig, sliding_window=None),
    "mixtral": _config(MixtralConfig, num_local_experts=4),
    "gemma": _config(GemmaConfig, head_dim=32),
    "gemma2": _config(
        Gemma2Config,
        head_dim=16,
        query_pre_attn_scalar=20,
        sliding_window=WINDOW,
        # low enough to matter, with these weights
        attn_logit_softcapping=3.0,
        final_logit_softcapping=2.0,
    ),
    "gemma3": _config(Gemma3TextConfig, **_GEMMA3),
    "gemma3-pictures": _sees(Gemma3Config, Gemma3TextConfig, **_GEMMA3, tie_word_embeddings=True),
    "mistral3": _sees(Mistral3Config, MistralConfig, head_dim=32, sliding_window=None),
    "ministral3": _config(Ministral3Config, **_MINISTRAL3),
    "ministral3-pictures": _sees(
        Mistral3Config, Ministral3Config, **_MINISTRAL3, tie_word_embeddings=True
    ),
    "phi": _config(PhiConfig, qk_layernorm=True),
    "phi-tied": _config(PhiConfig, tie_word_embeddings=True),
    "phi3-window": _config(Phi3Config, sliding_window=WINDOW),
    "phi3-longrope": _config(
        Phi3Config,
        rope_parameters=_LONGROPE,
        original_max_position_embeddings=64,
    ),
    "olmo2": _config(Olmo2Config),
    "olmo3": _config(
        Olmo3Config,
        num_hidden_layers=4,
        sliding_window=WINDOW,
        rope_parameters={
            "full_attention": _YARN,
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
    "exaone4": _config(Exaone4Config, sliding_window=WINDOW, num_hidden_layers=4),
    "exaone4-global": _config(
        Exaone4Config,
        sliding_window=None,
        layer_types=["full_attention"] * 2,
        rope_parameters=_LLAMA3_ROPE,
    ),
    "gpt2": _config(GPT2Config),
    "gpt-neox": _config(GPTNeoXConfig),
    "gpt-neox-in-a-row": _config(GPTNeoXConfig, use_parallel_residual=False, rotary_pct=0.5),
    "falcon": _config(FalconConfig),
    "falcon-groups": _config(FalconConfig, new_decoder_architecture=True, num_kv_heads=2),
    "falcon-in-a-row": _config(FalconConfig, parallel_attn=False, multi_query=False, bias=True),
    "starcoder2": _config(Starcoder2Config, sliding_window=WINDOW),
    "granite": _config(
        GraniteConfig,
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        attention_multiplier=0.2,
        logits_scaling=5.0,
    ),
    "smollm3": _config(SmolLM3Config, num_hidden_layers=4),
    "seed-oss": _config(SeedOssConfig, head_dim=32),
    "glm": _config(GlmConfig, head_dim=16),
    "glm4": _config(Glm4Config, head_dim=32),
    "ernie4-5": _config(Ernie4_5Config, head_dim=32),
    "cohere": _config(CohereConfig, logit_scale=0.3),
    "cohere2": _config(
        Cohere2Config, sliding_window=WINDOW, num_hidden_layers=4, attention_bias=True
    ),
    # what our decoders do not know
    "opt": _config(OPTConfig),
    # layers that keep a state of each sequence
    "qwen3-5": _sees(Qwen3_5Config, Qwen3_5TextConfig, **_GATED_DELTA, num_hidden_layers=4),
    "qwen3-next": _config(
        Qwen3NextConfig, **_GATED_DELTA, **_EXPERTS, num_experts=4, num_hidden_layers=4
    ),
    "olmo-hybrid": _config(OlmoHybridConfig, **_GATED_DELTA, num_hidden_layers=4),
    "lfm2": _config(
        Lfm2Config, num_hidden_layers=4, layer_types=["conv", "full_attention"] * 2, block_dim=64
    ),
    "granite-4": _config(
        GraniteMoeHybridConfig,
        **_MAMBA,
        num_hidden_layers=4,
        layer_types=["mamba", "attention"] * 2,
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=96,
    ),
    "falcon-h1": _config(FalconH1Config, **_MAMBA, mamba_d_ssm=128, head_dim=16),
    "nemotron-h": _config(
        NemotronHConfig,
        num_hidden_layers=4,
        hybrid_override_pattern="M*M-",
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=16,
        n_groups=1,
        head_dim=16,
    ),
    "mamba2": _config(
        Mamba2Config, num_heads=8, head_dim=16, state_size=16, n_groups=1, num_key_value_heads=None
    ),
    "qwen2-5-vl": _sees(Qwen2_5_VLConfig, Qwen2_5_VLTextConfig, rope_parameters=_MROPE),
    "qwen3-vl": _sees(Qwen3VLConfig, Qwen3VLTextConfig, head_dim=16, rope_parameters=_MROPE),
    "deepseek-v3": _config(
        DeepseekV3Config,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=32,
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
    ),
    "gpt-oss": _config(
        GptOssConfig,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=WINDOW,
        rope_parameters=_YARN | {"truncate": False},
    ),
    # what nothing here can serve
    "llama4": _config(
        Llama4TextConfig,
        head_dim=16,
        intermediate_size_mlp=96,
        num_local_experts=2,
        num_experts_per_tok=1,
        num_hidden_layers=4,
        attention_chunk_size=WINDOW,
    ),
}


def auto_class(config: PreTrainedConfig) -> Any:  # noqa: ANN401 - Transformers is not typed
    """What Transformers loads such a model by."""
    is_decoder = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForCausalLM if is_decoder else AutoModelForImageTextToText


def build(name: str, folder: Path) -> Path:
    """Write the model of this name into a folder; the same weights every time."""
    return build_config(CONFIGS[name](), folder)


def build_config(config: PreTrainedConfig, folder: Path) -> Path:
    """Write a model of this config into a folder."""
    torch.manual_seed(0)
    model = auto_class(config).from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # large, and biases and norms too, so that a mistake anywhere shows in the tokens
            is_norm = parameter.dim() == 1 and not name.endswith("bias")
            torch.nn.init.normal_(parameter, mean=float(is_norm), std=0.2)
    model.save_pretrained(folder)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    """Have the config of a folder say something else."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def folder_of(name: str, tmp_path: Path) -> Path:
    """The folder of a tiny model, built now, or of the model in the box."""
    return brooklet_path() if name == "brooklet" else build(name, tmp_path)
