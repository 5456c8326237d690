"""A tiny Llama with random weights, written without Transformers, so that it loads fast."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCAB_SIZE, MAX_POSITIONS = 64, 16384
NUM_LAYERS, HIDDEN, NUM_HEADS, NUM_KV_HEADS, INTERMEDIATE = 2, 32, 4, 2, 48

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "intermediate_size": INTERMEDIATE,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_POSITIONS,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def build_tiny_llama(folder: Path, head_dim: int = HIDDEN // NUM_HEADS) -> Path:
    """Write `config.json` and `model.safetensors`; the same weights every time."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"model.embed_tokens": (VOCAB_SIZE, HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(NUM_LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.self_attn.q_proj": (NUM_HEADS * head_dim, HIDDEN),
            f"{prefix}.self_attn.k_proj": (NUM_KV_HEADS * head_dim, HIDDEN),
            f"{prefix}.self_attn.v_proj": (NUM_KV_HEADS * head_dim, HIDDEN),
            f"{prefix}.self_attn.o_proj": (HIDDEN, NUM_HEADS * head_dim),
            f"{prefix}.mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj": (HIDDEN, INTERMEDIATE),
            f"{prefix}.input_layernorm": (HIDDEN,),
            f"{prefix}.post_attention_layernorm": (HIDDEN,),
        }
    weights = {
        f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"head_dim": head_dim}))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
