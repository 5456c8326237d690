"""LoRA adapters with random weights for the tiny Llama, written without PEFT."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from engines import a_request
from safetensors.torch import save_file
from tiny_llama import HIDDEN, INTERMEDIATE, NUM_LAYERS

from streamwell.core.types import GenerateRequest

CONFIG = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "bias": "none"}
_SIZES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}


def build_tiny_lora(folder: Path, seed: int = 0) -> Path:
    """Write `adapter_config.json` and `adapter_model.safetensors`."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(NUM_LAYERS):
        for name, (num_outputs, num_inputs) in _SIZES.items():
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(4, num_inputs, generator=generator)
            weights[f"{prefix}.lora_B.weight"] = torch.randn(num_outputs, 4, generator=generator)
    folder.mkdir(parents=True, exist_ok=True)
    targets = [name.partition(".")[2] for name in _SIZES]
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, "target_modules": targets}))
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    return folder


def a_greedy_request(adapter: str, name: str = "a", max_tokens: int = 8) -> GenerateRequest:
    """A prompt of two blocks, so that there is something to cache."""
    request = a_request(name, max_tokens, tuple(range(5, 45)), temperature=0.0)
    return replace(request, adapter=adapter)
