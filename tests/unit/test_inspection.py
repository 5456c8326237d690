"""What passes the inspection of a model folder, and what of its settings is used.

What does not pass: `tests/e2e/test_hostile_folders.py`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from streamwell.core.errors import LoadError
from streamwell.models import brooklet_path
from streamwell.models.inspection import inspect_model, inspect_tokenizer
from streamwell.models.resolve import default_sampling
from streamwell.models.weights import max_elements, weight_files

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(brooklet_path(), tmp_path / "model"))


def change(folder: Path, name: str, **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def shard(folder: Path) -> None:
    """Split the weights in two files with an index, as large models are saved."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"{i % 2}.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(weight_map.values()):
        save_file({n: w for n, w in weights.items() if weight_map[n] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize(
    "changes",
    [
        {"_attn_implementation_autoset": True},
        {"auto_map": None, "trust_remote_code": False, "_attn_implementation": None},
        {"time_step_limit": [0.0, float("inf")], "num_experts": None, "num_heads": [2, 4]},
        {"max_position_embeddings": 10**7, "rope_theta": 10**11, "sliding_window": 2**40},
        {"vision_config": {"num_hidden_layers": 27, "hidden_size": 768}},
        {"vision_config": {"num_attention_heads": 0, "rms_norm_eps": "small"}},
        {"num_experts": 0, "num_experts_per_tok": 0, "head_dim": None, "intermediate_size": None},
        {"num_key_value_heads": [2, 2, 1, 2], "num_local_experts": 4, "num_experts_per_tok": 2},
        {"rope_scaling": {"type": "yarn", "factor": 4}, "rms_norm_eps": 0, "pad_token_id": -1},
        {"eos_token_id": [2, 3], "bos_token_id": None, "sliding_window": 0},
    ],
)
def test_honest_configs_pass(folder: Path, changes: dict[str, object]) -> None:
    """What Transformers has saved over the years, and counts that are not of weights."""
    change(folder, "config.json", **changes)

    inspect_model(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0.0, "repetition_penalty": 1},
        {"temperature": None, "top_k": -1, "max_new_tokens": 32768, "do_sample": True},
        {"eos_token_id": [2, 99999, -1], "pad_token_id": None},
    ],
)
def test_honest_settings_pass(folder: Path, changes: dict[str, object]) -> None:
    """Also those that switch something off."""
    change(folder, "generation_config.json", **changes)

    inspect_model(folder)


def test_a_model_in_several_files_passes(folder: Path) -> None:
    """Its files are those of the index, and its size is that of one file."""
    size = max_elements(folder, is_quantized=False)
    shard(folder)

    inspect_model(folder)

    assert [folder / "0.safetensors", folder / "1.safetensors"] == weight_files(folder)
    assert size == max_elements(folder, is_quantized=False)


def test_weights_may_be_there_twice(folder: Path) -> None:
    """Some folders have one file beside those of the index: the index counts, both are checked."""
    shutil.copy(folder / "model.safetensors", folder / "whole")
    shard(folder)
    shutil.copy(folder / "whole", folder / "model.safetensors")
    inspect_model(folder)

    (folder / "model.safetensors").write_bytes(b"")

    assert 2 == len(weight_files(folder))
    with pytest.raises(LoadError, match="truncated"):
        inspect_model(folder)


def test_integers_stand_for_numbers_where_a_config_says_how(folder: Path) -> None:
    """Quantised checkpoints say so, at whatever depth; pickles beside safetensors are not read."""
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = np.ones(192, np.int8)
    save_file(weights, folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    with pytest.raises(LoadError, match="quantization_config"):
        inspect_model(folder)

    change(folder, "config.json", text_config={"quantization_config": {"quant_method": "fp8"}})

    inspect_model(folder)


def test_trust_lifts_what_is_asked_for_and_nothing_else(folder: Path) -> None:
    """Code is let through, lies are not."""
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        change(folder, name, auto_map={"AutoConfig": "evil.Evil"})

    inspect_model(folder, trust_remote_code=True)
    inspect_tokenizer(folder, trust_remote_code=True)

    change(folder, "config.json", num_hidden_layers=10**9)
    with pytest.raises(LoadError, match="num_hidden_layers"):
        inspect_model(folder, trust_remote_code=True)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """It is named."""
    for inspect in (inspect_model, inspect_tokenizer):
        with pytest.raises(LoadError, match=r"no such folder: .*nowhere"):
            inspect(tmp_path / "nowhere")


def test_settings_without_a_meaning_are_left_out(folder: Path) -> None:
    """They could not be computed with; those of other types are refused at the load."""
    change(folder, "generation_config.json", temperature=float("nan"), top_k=1e300, top_p=0.5)
    assert {"top_p": 0.5} == default_sampling(folder)

    change(folder, "generation_config.json", temperature=-1, top_k="many", top_p=None, min_p=0)
    assert {"min_p": 0} == default_sampling(folder)

    (folder / "generation_config.json").write_text("[]")
    assert {} == default_sampling(folder)
