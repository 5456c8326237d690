"""Checkpoints that come rounded run on Transformers' code, or it is said what they need."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests, tokens_of
from safetensors.torch import load_file, save_file
from tiny_models import CONFIGS, VOCAB_SIZE, build, build_config, edit_config
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig

from streamwell.core.errors import LoadError

pytestmark = pytest.mark.slow

BLOCK = 32


def fp8(folder: Path) -> Path:
    """Blocks of eight-bit floats with a scale for each, as DeepSeek saves them."""
    config = CONFIGS["llama"]()
    config.intermediate_size = 4 * BLOCK
    build_config(config, folder)
    weights = load_file(folder / "model.safetensors")
    for name, weight in list(weights.items()):
        if "_proj.weight" in name:
            scale = weight.abs().max() / torch.finfo(torch.float8_e4m3fn).max
            counts = [size // BLOCK for size in weight.shape]
            weights[name] = (weight / scale).to(torch.float8_e4m3fn)
            weights[f"{name}_scale_inv"] = scale.expand(*counts).contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    quantization = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
    edit_config(folder, quantization_config=quantization)
    return folder


def torchao(folder: Path) -> Path:
    """Eight-bit integers with a scale for each output."""
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig

    return rounded(folder, TorchAoConfig(Int8WeightOnlyConfig()))


def bitsandbytes(folder: Path) -> Path:
    """The same, and activations too."""
    pytest.importorskip("bitsandbytes")
    return rounded(folder, BitsAndBytesConfig(load_in_8bit=True))


def rounded(folder: Path, quantization: Any) -> Path:  # noqa: ANN401 - Transformers is not typed
    build("llama", folder / "plain")
    AutoModelForCausalLM.from_pretrained(
        folder / "plain", quantization_config=quantization, dtype=torch.float32, device_map="cpu"
    ).save_pretrained(folder / "rounded")
    return folder / "rounded"


@pytest.mark.filterwarnings("default")  # of these packages
@pytest.mark.parametrize("make", [fp8, torchao, bitsandbytes])
def test_tokens_are_those_of_transformers(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """The engine serves what Transformers loads, through our scheduler and cache."""
    folder = make(tmp_path)
    requests = make_requests(VOCAB_SIZE)[:6]
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, device_map="cpu"
    ).eval()

    model = load_model(folder)
    outcomes = EngineRig(model).serve(requests)

    assert "transformers" == model.info.implementation
    assert tokens_of(reference, requests) == {k: out.token_ids for k, out in outcomes.items()}


@pytest.mark.parametrize(
    ("quantization", "says"),
    [
        ({"quant_method": "gptq", "bits": 4}, "rounded by gptq.* pip install optimum gptqmodel"),
        ({"quant_method": "awq", "bits": 4}, "rounded by awq.* pip install gptqmodel"),
        ({"quant_method": "hqq"}, "rounded by hqq.* pip install hqq"),
        ({"quant_method": "compressed-tensors"}, "pip install compressed-tensors"),
        ({"quant_method": "nonesuch"}, "weights rounded by 'nonesuch' cannot be read"),
        ({"bits": 4}, "quantization_config has no quant_method"),
        ("gptq", "quantization_config is 'gptq', not an object"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, quantization: object, says: str) -> None:
    """Packages by the names that `pip` wants; what nobody reads is not taken as it is."""
    folder = build("llama", tmp_path)
    edit_config(folder, quantization_config=quantization)

    with pytest.raises(LoadError, match=says):
        load_model(folder)


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="it is installed")
def test_old_configs_of_bitsandbytes_are_known(tmp_path: Path) -> None:
    """They have no `quant_method`; that the package is not there is said all the same."""
    folder = build("llama", tmp_path)
    edit_config(folder, quantization_config={"load_in_8bit": True})

    with pytest.raises(LoadError, match="pip install bitsandbytes"):
        load_model(folder)


@pytest.mark.parametrize("options", [{"model_impl": "torch"}, {"quantization": "int8"}])
def test_they_are_not_rounded_again(tmp_path: Path, options: dict[str, str]) -> None:
    """Our decoders do not read such weights, and say so."""
    with pytest.raises(LoadError, match=r"does not know this architecture|that come rounded"):
        load_model(fp8(tmp_path), **options)
