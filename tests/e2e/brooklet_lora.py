"""LoRA adapters of the built-in model, with random weights that change what it says."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from streamwell.models import brooklet_path

RANK = 4
TARGETS = ("q_proj", "v_proj", "down_proj")
_CONFIG = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK}


def build_brooklet_lora(folder: Path, seed: int) -> Path:
    """Write a folder as PEFT does."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, weight in load_file(brooklet_path() / "model.safetensors").items():
        if name.removesuffix(".weight").endswith(TARGETS):
            num_outputs, num_inputs = weight.shape
            prefix = f"base_model.model.{name.removesuffix('.weight')}"
            down = torch.randn(RANK, num_inputs, generator=generator) / num_inputs**0.5
            up = torch.randn(num_outputs, RANK, generator=generator) / 6
            weights |= {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}
    folder.mkdir(parents=True)
    config = _CONFIG | {"target_modules": list(TARGETS)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    return folder
