"""Pairs of a model and a draft model, made of one model: the draft is its first layers.

With random weights no two models agree about anything, and greedy text soon goes in circles. So a
random model is changed: each token's embedding is made large, and is what the output layer looks
for in another token. Then every token has a likely successor, and the layers decide whether
it comes. Those above the draft's are made to add little: the smaller the factor by which the
weights are scaled through which they speak, the more often both models say the same. What a step
costs depends on none of that.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.*)")
_SPEAKS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
#: How much larger embeddings are made: successors and layers then have about the same weight.
_EMBEDDING_SCALE = 4.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folders of models with the same vocabulary."""

    name: str
    target: Path
    draft: Path


def first_layers(name: str, folder: Path, out: Path, num_layers: int) -> Pair:
    """The model in `folder`, and its first layers written below `out`."""
    config, weights = _read(folder)
    return Pair(name, folder, _write_first(folder, out / name, config, weights, num_layers))


def random_pair(
    name: str, folder: Path, out: Path, *, num_layers: int, factor: float, vocab_size: int
) -> Pair:
    """A pair made of the random model in `folder`, written below `out`.

    Args:
        name: of the pair, and of its folder.
        folder: a decoder in the layout of Llama, in one file of weights.
        out: where the pair's folder is made.
        num_layers: how many layers the draft has.
        factor: of what the model's other layers add.
        vocab_size: how many tokens of the vocabulary are kept.
    """
    config, weights = _read(folder)
    embedding = weights[_EMBEDDING][:vocab_size] * _EMBEDDING_SCALE
    successors = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0))
    weights |= {_EMBEDDING: embedding, _HEAD: embedding[successors]}
    config |= {"vocab_size": vocab_size, "tie_word_embeddings": False}
    for tensor in weights:
        if _layer(tensor) >= num_layers and tensor.endswith(_SPEAKS):
            weights[tensor] *= factor
    target = _write(folder, out / name / "target", config, weights)
    return Pair(name, target, _write_first(folder, out / name, config, weights, num_layers))


def _layer(name: str) -> int:
    """The number of the layer that a tensor belongs to; -1 if to none."""
    match = _LAYER.fullmatch(name)
    return int(match[1]) if match else -1


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config, load_file(folder / "model.safetensors")


def _write_first(
    source: Path,
    out: Path,
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    num_layers: int,
) -> Path:
    kept = {name: tensor for name, tensor in weights.items() if _layer(name) < num_layers}
    changes: dict[str, Any] = {"num_hidden_layers": num_layers}
    if "layer_types" in config:
        changes["layer_types"] = config["layer_types"][:num_layers]
    return _write(source, out / "draft", {**config, **changes}, kept)


def _write(
    source: Path, folder: Path, config: Mapping[str, Any], weights: dict[str, torch.Tensor]
) -> Path:
    folder.mkdir(parents=True)
    for file in source.glob("*.json"):
        shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
