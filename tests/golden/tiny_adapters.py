"""LoRA adapters with random weights for the tiny models, written and run by PEFT."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engine_rig import tokens_of
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from streamwell.core.types import GenerateRequest

#: By tiny model: what its layers for attention and feed-forward are called, as far as adapted.
TARGETS: dict[str, tuple[list[str], list[str]]] = {
    "llama": (["q_proj", "v_proj"], ["up_proj", "down_proj"]),
    "gemma2": (["q_proj", "k_proj", "o_proj"], ["gate_proj", "down_proj"]),
    "mixtral": (["q_proj", "k_proj"], ["o_proj"]),
    "phi": (["q_proj", "dense"], ["fc1"]),
    "phi3-window": (["qkv_proj"], ["gate_up_proj", "down_proj"]),
    "gpt2": (["c_attn"], ["c_fc"]),
    "gpt-neox": (["query_key_value"], ["dense_4h_to_h"]),
    "falcon-groups": (["query_key_value"], ["dense_h_to_4h"]),
}

#: The attention of the second layer, where it is not called as Llama's is.
_LAYERS = {
    "gpt2": "h.1.attn",
    "gpt-neox": "layers.1.attention",
    "falcon-groups": "h.1.self_attention",
}


def configs(name: str) -> dict[str, dict[str, Any]]:
    """Options of three adapters of a tiny model, of different ranks and layers."""
    attention, mlp = TARGETS[name]
    every = [*attention, *mlp] if name == "mixtral" else "all-linear"
    options = {
        "every": {"r": 4, "lora_alpha": 8, "target_modules": every},
        "attention": {
            "r": 8,
            "lora_alpha": 4,
            "use_rslora": True,
            "target_modules": attention,
            "rank_pattern": {f"{_LAYERS.get(name, 'layers.1.self_attn')}.{attention[0]}": 6},
            "alpha_pattern": {attention[-1]: 9},
        },
        "upper": {
            "r": 3,
            "lora_alpha": 5,
            "target_modules": mlp,
            "layers_to_transform": [1],
            "layers_pattern": _LAYERS.get(name, "layers").split(".")[0],
        },
    }
    is_transposed = name == "gpt2"  # changes nothing here, but PEFT wants to be told
    return {adapter: {**each, "fan_in_fan_out": is_transposed} for adapter, each in options.items()}


def build_adapter(base: Path, folder: Path, *, seed: int = 0, **options: Any) -> Path:  # noqa: ANN401
    """Write an adapter for the model in `base`, with weights that change what it says."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with _quiet():
        adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.25)
    with _quiet():
        adapted.save_pretrained(folder)
    return folder


def _quiet() -> warnings.catch_warnings[None]:
    """PEFT uses names that Transformers will give up."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


def build_adapters(name: str, base: Path, folder: Path) -> dict[str, Path]:
    """The adapters of `configs`, by their names."""
    return {
        adapter: build_adapter(base, folder / adapter, seed=seed, **options)
        for seed, (adapter, options) in enumerate(configs(name).items())
    }


def peft_tokens(
    base: Path, adapters: dict[str, Path], requests: list[GenerateRequest]
) -> dict[str, list[int]]:
    """What PEFT's `generate(do_sample=False)` gives each request with the adapter that it names."""
    tokens: dict[str, list[int]] = {}
    for adapter in ("", *adapters):
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        if adapter:
            with _quiet():
                model = PeftModel.from_pretrained(model, adapters[adapter]).eval()
        tokens |= tokens_of(model, [r for r in requests if r.adapter == adapter])
    return tokens


def spread(requests: list[GenerateRequest], adapters: dict[str, Path]) -> list[GenerateRequest]:
    """The same requests, each with another adapter than the one before; some with none."""
    names = ["", *adapters]
    return [replace(r, adapter=names[i % len(names)]) for i, r in enumerate(requests)]
