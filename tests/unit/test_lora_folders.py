"""What is read of an adapter's folder, and what is refused: a folder may come from anybody."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from streamwell.core.errors import LoadError
from streamwell.engine.linear import Delta, Deltas
from streamwell.engine.lora.config import MAX_RANK
from streamwell.engine.lora.folder import Base, read_pairs
from streamwell.engine.lora.fused import fuse
from streamwell.engine.lora.layers import Adaptable

HIDDEN, KEYS, INNER, RANK = 8, 4, 12, 2
LAYER = "model.layers.0."
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": RANK,
    "lora_alpha": 4,
    "target_modules": ["q_proj", "v_proj", "down_proj"],
    "bias": "none",
    # what PEFT writes along, and changes nothing
    "auto_mapping": None,
    "base_model_name_or_path": "somewhere/else",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "lora_dropout": 0.1,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "use_dora": False,
}
SIZES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}


_ATTENTION = {f"{LAYER}self_attn.{kind}_proj": HIDDEN if kind == "q" else KEYS for kind in "qkv"}
#: One block of a model, with queries, keys and values in one.
LAYERS = [
    Adaptable(0, "qkv", HIDDEN, _ATTENTION),
    Adaptable(0, "down", INNER, {f"{LAYER}mlp.down_proj": HIDDEN}),
]
BASE = Base(LAYERS, lambda name, rows: {name: rows}, torch.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An honest adapter."""
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, (num_outputs, num_inputs) in SIZES.items():
        shapes = {"A": (RANK, num_inputs), "B": (num_outputs, RANK)}
        for side, shape in shapes.items():
            weights[_tensor(name, side)] = torch.randn(shape, generator=generator)
    (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
    save_file(weights, tmp_path / "adapter_model.safetensors")
    return tmp_path


def _tensor(name: str, side: str) -> str:
    return f"base_model.model.{LAYER}{name}.lora_{side}.weight"


def configure(folder: Path, **changes: object) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **changes}))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace or leave out the tensors of the queries, or add others."""
    weights = weights_of(folder)
    for name, tensor in tensors.items():
        key = _tensor("self_attn.q_proj", name) if name in "AB" else name
        weights.pop(key, None)
        if tensor is not None:
            weights[key] = tensor
    save_file(weights, folder / "adapter_model.safetensors")


def added(delta: Delta) -> torch.Tensor:
    return delta.up @ delta.down


def read(folder: Path, max_rank: int = 64, dtype: torch.dtype = torch.float32) -> Deltas:
    pairs = read_pairs(folder, replace(BASE, dtype=dtype), max_rank)
    return fuse(LAYERS, pairs, dtype, torch.device("cpu"))


def expected(folder: Path, name: str, scale: float) -> torch.Tensor:
    weights = weights_of(folder)
    return scale * weights[_tensor(name, "B")] @ weights[_tensor(name, "A")]


def test_parts_of_fused_layers_get_their_own(folder: Path) -> None:
    """Queries and values have theirs, keys between them nothing; scaled by alpha over rank."""
    deltas = read(folder)

    attention = added(deltas[f"{LAYER}self_attn.q_proj"])
    queries, keys, values = attention.split([HIDDEN, KEYS, KEYS])
    torch.testing.assert_close(queries, expected(folder, "self_attn.q_proj", 2.0))
    assert 0 == keys.count_nonzero()
    torch.testing.assert_close(values, expected(folder, "self_attn.v_proj", 2.0))
    down = added(deltas[f"{LAYER}mlp.down_proj"])
    torch.testing.assert_close(down, expected(folder, "mlp.down_proj", 2.0))
    assert 2 == len(deltas)


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({"use_rslora": True}, 4 / 2**0.5),
        ({"lora_alpha": 3.5}, 1.75),
        ({"alpha_pattern": {"k_proj": 9, "q_proj": 6}}, 3.0),
        ({"alpha_pattern": {"self_attn.q_proj": 6, "q_proj": 8}}, 3.0),
        ({"alpha_pattern": {"^model.layers.0.self_attn.q_proj": 6}}, 3.0),
        ({"alpha_pattern": {"_proj": 6, "^self_attn.q_proj": 6}}, 2.0),
        ({"r": 7, "rank_pattern": {"what.ever": RANK}}, 2.0),
        ({"target_modules": "all-linear"}, 2.0),
        ({"target_modules": r".*\.(q|v|down)_proj"}, 2.0),
        ({"target_modules": None, "layers_to_transform": [0, 3]}, 2.0),
        ({"layers_to_transform": 0, "layers_pattern": "layers"}, 2.0),
    ],
)
def test_scales_are_those_of_peft(folder: Path, changes: dict[str, object], scale: float) -> None:
    """Alpha over the rank or its root; patterns mean a whole name or its end, the first counts."""
    configure(folder, **changes)

    queries = added(read(folder)[f"{LAYER}self_attn.q_proj"])[:HIDDEN]

    torch.testing.assert_close(queries, expected(folder, "self_attn.q_proj", scale))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("saved", [torch.float32, torch.float16, torch.bfloat16])
def test_any_type_of_floats_will_do(folder: Path, saved: torch.dtype, dtype: torch.dtype) -> None:
    """They are computed with in the model's own."""
    weights = {name: weight.to(saved) for name, weight in weights_of(folder).items()}
    save_file(weights, folder / "adapter_model.safetensors")

    deltas = read(folder, dtype=dtype)

    assert {dtype} == {t.dtype for delta in deltas.values() for t in (delta.down, delta.up)}


@pytest.mark.parametrize(("dtype", "value"), [(torch.float16, 1e5), (torch.bfloat16, 3.4e38)])
def test_what_is_too_large_for_the_model_is_refused(
    folder: Path, dtype: torch.dtype, value: float
) -> None:
    """A number that only a wider type holds would be infinite in the model's."""
    up = weights_of(folder)[_tensor("self_attn.q_proj", "B")]
    up[0, 0] = value / 2  # the scale is two
    change(folder, B=up)

    with pytest.raises(LoadError, match="not finite"):
        read(folder, dtype=dtype)

    read(folder)


REFUSED_FIELDS: list[tuple[dict[str, object], str]] = [
    ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    ({"peft_type": None}, "peft_type is None"),
    ({"task_type": "SEQ_CLS"}, "task_type"),
    ({"bias": "all"}, "bias is 'all'"),
    ({"use_dora": True}, "'use_dora'"),
    ({"modules_to_save": ["lm_head"]}, "'modules_to_save'"),
    ({"lora_bias": True}, "'lora_bias'"),
    ({"trainable_token_indices": [1]}, "'trainable_token_indices'"),
    ({"layer_replication": [[0, 1]]}, "'layer_replication'"),
    ({"target_parameters": ["mlp.experts"]}, "'target_parameters'"),
    ({"of_a_later_version": 1}, "'of_a_later_version'"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    ({"init_lora_weights": ["loftq"]}, "init_lora_weights"),
    ({"use_rslora": "yes"}, "use_rslora"),
    ({"r": 0}, "a rank .* is 0"),
    ({"r": True}, "a rank .* is True"),
    ({"r": "8"}, "a rank .* is '8'"),
    ({"r": None}, "a rank .* is None"),
    ({"r": 65}, "over 64; see --max-lora-rank"),
    ({"r": 10**30}, "over 64"),
    ({"rank_pattern": {"q_proj": 65}}, "over 64"),
    ({"rank_pattern": ["q_proj"]}, "rank_pattern"),
    ({"lora_alpha": None}, "lora_alpha is None"),
    ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
    ({"lora_alpha": float("inf")}, "lora_alpha is inf"),
    ({"lora_alpha": -1e300}, "lora_alpha"),
    ({"lora_alpha": 10**400}, "lora_alpha"),
    ({"alpha_pattern": {"q_proj": "9"}}, "alpha_pattern is '9'"),
    ({"alpha_pattern": {"(a+)+b": 9}}, "no plain name"),
    ({"alpha_pattern": [1]}, "alpha_pattern"),
    ({"alpha_pattern": {"q" * 301: 1}}, "no plain name"),
    ({"target_modules": [1]}, "target_modules"),
    ({"target_modules": ["q_proj"] * 4097}, "target_modules"),
    ({"target_modules": {"q_proj": 1}}, "target_modules"),
    ({"target_modules": ["proj", "v_proj", "down_proj"]}, "not one of target_modules"),
    ({"layers_to_transform": "all"}, "layers_to_transform"),
    ({"layers_to_transform": [True]}, "layers_to_transform"),
    ({"layers_to_transform": [1]}, "not one of layers_to_transform"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSED_FIELDS, ids=lambda value: str(value)[:40])
def test_fields_that_cannot_be_served_are_refused(
    folder: Path, changes: dict[str, object], says: str
) -> None:
    """By name, in the file that has them; also those that nobody here has heard of."""
    configure(folder, **changes)

    with pytest.raises(LoadError, match=says) as refused:
        read(folder)

    assert str(folder) in str(refused.value)


@pytest.mark.parametrize("max_rank", [1, MAX_RANK + 1, 10**9])
def test_no_rank_is_over_the_limits(folder: Path, max_rank: int) -> None:
    """That of the flag, and the one that no flag can lift."""
    configure(folder, r=min(max_rank, MAX_RANK) + 1)

    with pytest.raises(LoadError, match=f"over {min(max_rank, MAX_RANK)};"):
        read(folder, max_rank)


def _zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def _layer(name: str, num_outputs: int = HIDDEN, num_inputs: int = HIDDEN) -> dict[str, Any]:
    sides = {"A": (RANK, num_inputs), "B": (num_outputs, RANK)}
    prefix = f"base_model.model.{name}"
    return {f"{prefix}.lora_{side}.weight": _zeros(*shape) for side, shape in sides.items()}


REFUSED_TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "one side only": ({"A": None}, "one of its two tensors only"),
    "other inputs": ({"A": _zeros(RANK, 9)}, "has not the shape"),
    "other outputs": ({"B": _zeros(9, RANK)}, "has not the shape"),
    "the other way round": ({"A": _zeros(HIDDEN, RANK)}, "of rank 8, but .* says 2"),
    "two ranks": ({"B": _zeros(HIDDEN, 3)}, "has not the shape"),
    "another rank": ({"A": _zeros(3, HIDDEN), "B": _zeros(HIDDEN, 3)}, "of rank 3, but"),
    "no rank": ({"A": _zeros(0, HIDDEN), "B": _zeros(HIDDEN, 0)}, "of rank 0, but"),
    "a convolution": ({"A": _zeros(RANK, HIDDEN, 1)}, "no matrix of floats"),
    "integers": ({"A": _zeros(RANK, HIDDEN, dtype=torch.int8)}, "is I8 of"),
    "doubles": ({"A": _zeros(RANK, HIDDEN, dtype=torch.float64)}, "is F64 of"),
    "not a number": ({"A": torch.full((RANK, HIDDEN), float("nan"))}, "is not finite"),
    "infinite": ({"B": torch.full((HIDDEN, RANK), float("inf"))}, "is not finite"),
    "too large with its scale": ({"B": torch.full((HIDDEN, RANK), 3e38)}, "is not finite"),
    "a magnitude": (
        {f"base_model.model.{LAYER}self_attn.q_proj.lora_magnitude_vector": _zeros(8)},
        "is none of plain LoRA",
    ),
    "a whole layer": ({"base_model.model.lm_head.weight": _zeros(9, 8)}, "is none of plain LoRA"),
    "an embedding": (
        {"base_model.model.model.embed_tokens.lora_embedding_A": _zeros(RANK, 9)},
        "is none of plain LoRA",
    ),
    "the output layer": (_layer("lm_head", 9), "'lm_head' cannot be adapted"),
    "an expert": (_layer(f"{LAYER}mlp.experts.0.up_proj"), "experts.* cannot be adapted"),
    "a layer too many": (_layer("model.layers.1.self_attn.q_proj"), "cannot be adapted"),
    "a name that has no end": (_layer("a" * 301), "is none of plain LoRA"),
}


@pytest.mark.parametrize("name", REFUSED_TENSORS)
def test_tensors_that_do_not_fit_are_refused(folder: Path, name: str) -> None:
    """What an adapter changes must be layers of the model, completely, and all of them finite."""
    tensors, says = REFUSED_TENSORS[name]
    change(folder, **tensors)

    with pytest.raises(LoadError, match=says):
        read(folder)


def test_layers_are_adapted_once(folder: Path) -> None:
    """Two names may come down to one layer; nobody could say which of them counts."""
    layer = f"{LAYER}self_attn.q_proj"
    twice = replace(BASE, canonical_rows=lambda _name, _rows: {layer: torch.zeros(HIDDEN, RANK)})
    change(folder, **{_tensor("mlp.down_proj", side): None for side in "AB"})

    with pytest.raises(LoadError, match="adapted twice"):
        read_pairs(folder, twice, 64)


def test_outputs_that_cannot_be_divided_are_refused(folder: Path) -> None:
    """As those of a fused layer, when there are not enough of them."""

    def canonical_rows(_name: str, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": rows.view(-1, 7)}

    fused = replace(BASE, canonical_rows=canonical_rows)

    with pytest.raises(LoadError, match="cannot be divided"):
        read_pairs(folder, fused, 64)


def _pickle_only(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(pickle.dumps({}))


def _no_config(folder: Path) -> None:
    (folder / "adapter_config.json").unlink()


def _huge_config(folder: Path) -> None:
    os.truncate(folder / "adapter_config.json", (1 << 20) + 1)


def _config_of_garbage(folder: Path) -> None:
    (folder / "adapter_config.json").write_bytes(b"\x80\x04evil")


def _nested_config(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("[" * 100_000)


def _config_that_is_a_list(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("[]")


def _pipe_for_a_config(folder: Path) -> None:
    _no_config(folder)
    os.mkfifo(folder / "adapter_config.json")


def _pipe_for_weights(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    os.mkfifo(folder / "adapter_model.safetensors")


def _huge_weights(folder: Path) -> None:
    os.truncate(folder / "adapter_model.safetensors", 1 << 30)


def _truncated_weights(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    os.truncate(file, file.stat().st_size - 1)


def _no_tensors(folder: Path) -> None:
    save_file({}, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_pickle_only, "adapter_model.bin is a pickle, which is never read"),
        (_no_config, "no readable adapter_config.json"),
        (_huge_config, "adapter_config.json is too large"),
        (_config_of_garbage, "adapter_config.json is no JSON"),
        (_nested_config, "adapter_config.json is nested too deeply"),
        (_config_that_is_a_list, "adapter_config.json holds a list"),
        (_pipe_for_a_config, "adapter_config.json is not a regular file"),
        (_pipe_for_weights, r"no adapter_model\.safetensors"),
        (_huge_weights, r"adapter_model\.safetensors is too large"),
        (_truncated_weights, "truncated"),
        (_no_tensors, "there are no tensors"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_hostile_folders_are_refused(folder: Path, harm: Callable[[Path], None], says: str) -> None:
    """Before anything of them is loaded, and naming the file."""
    harm(folder)

    with pytest.raises(LoadError, match=says):
        read(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """So is a file where a folder is wanted."""
    with pytest.raises(LoadError, match=r"no such folder: .*nowhere"):
        read(tmp_path / "nowhere")
