"""Loads models by Transformers, with our attention in place of theirs.

Our attention function is registered with `AttentionInterface`; what one step needs travels to it
through the model's keyword arguments, so nothing is global.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
)
from transformers.quantizers import AutoHfQuantizer

from streamwell.core.errors import LoadError
from streamwell.engine.attention import Attention
from streamwell.models.claims import walk
from streamwell.models.small_files import read_object
from streamwell.models.weights import max_elements

#: The name under which Transformers finds `attention_forward`.
ATTENTION_NAME = "streamwell_paged"
#: What Transformers says to a folder that it cannot load.
_REFUSALS = (
    OSError,
    ValueError,
    KeyError,
    RuntimeError,
    ImportError,
    SafetensorError,
    StrictDataclassError,
)


def load(
    path: Path, dtype: torch.dtype, device: torch.device, *, trust_remote_code: bool
) -> tuple[Any, list[str]]:
    """The model of a folder, on the CPU, and the names of weights that it has no use for.

    Raises:
        LoadError: it cannot be loaded, or its attention cannot be replaced.
    """
    AttentionInterface.register(ATTENTION_NAME, attention_forward)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(path, **options)
        if not trust_remote_code:
            _check_size(config, path)
        if getattr(config, "quantization_config", None) is not None:
            _check_method(config.quantization_config)
            options["device_map"] = {"": str(device)}  # its packages put it there themselves
        model, report = _auto_class(config).from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation=ATTENTION_NAME,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except _REFUSALS as error:
        raise LoadError(f"cannot load {path}: {_reason(error, path)}") from error
    if report["missing_keys"]:  # Transformers would make them up
        first, *others = sorted(report["missing_keys"])
        more = f" and {len(others)} more" if others else ""
        raise LoadError(f"{path} has no weights {first!r}{more}")
    return model, sorted(report["unexpected_keys"])


def _reason(error: Exception, path: Path) -> str:
    """Why Transformers cannot load a folder, where its own words do not tell."""
    said = " ".join(str(error).split())
    if ATTENTION_NAME in said:
        return "its attention cannot be replaced"
    if "ignore_mismatched_sizes" in said:
        return "some of its weights are not of the sizes that its config.json says"
    if isinstance(error, KeyError):  # a word that it looked up in a table
        fields = walk(read_object(path / "config.json"))
        where = [field for field, _, value in fields if error.args and value == error.args[0]]
        named = f"{', '.join(where)} is" if where else "its config.json says"
        return f"{named} {said}, which Transformers does not know"
    return said


def _auto_class(config: Any) -> Any:  # noqa: ANN401 - Transformers is not typed
    sees = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if sees and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def _check_method(quantization: Any) -> None:  # noqa: ANN401 - an object of the config or a dict
    """Transformers only warns of what it does not know, and takes the weights as they are.

    Raises:
        LoadError: it does not know the method.
    """
    as_dict = quantization if isinstance(quantization, dict) else quantization.to_dict()
    if not AutoHfQuantizer.supports_quant_method(as_dict):
        raise LoadError(f"weights rounded by {as_dict.get('quant_method')!r:.40} cannot be read")


def _check_size(config: Any, path: Path) -> None:  # noqa: ANN401 - Transformers is not typed
    """Transformers makes room for what a config says, whatever the files hold.

    Raises:
        LoadError: it says much more than there is.
    """
    with torch.device("meta"):
        sketch = _auto_class(config).from_config(config)
    claimed = sum(tensor.numel() for tensor in (*sketch.parameters(), *sketch.buffers()))
    is_quantized = getattr(config, "quantization_config", None) is not None
    if claimed > (limit := max_elements(path, is_quantized=is_quantized)):
        raise LoadError(
            f"{path}/config.json describes {claimed} numbers, but the weights cannot be more than "
            f"{limit}"
        )


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention: Attention | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,  # noqa: ANN401 - Transformers passes what each family needs
) -> tuple[torch.Tensor, None]:
    """What Transformers' modelling code calls, with `[1, heads, num_tokens, dim]` tensors.

    Of layers beside others that keep a state, also with one token of several sequences.

    Raises:
        NotImplementedError: the model asks for attention we do not have.
    """
    if attention is None:
        raise NotImplementedError("its code does not pass on what attention needs")
    if kwargs.get("position_bias") is not None:
        raise NotImplementedError("attention with position_bias")
    if attention_mask is not None or not getattr(module, "is_causal", True):
        raise NotImplementedError("attention that is not just causal")
    # some families tell only the mask, which we do without
    window = kwargs.get("sliding_window", getattr(module, "sliding_window", None))
    num_seqs, _, num_tokens, _ = query.shape
    out = attention(
        int(module.layer_idx),  # type: ignore[arg-type]  # every attention module has one
        query.transpose(1, 2).flatten(0, 1),
        key.transpose(1, 2).flatten(0, 1),
        value.transpose(1, 2).flatten(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=window or None,
        softcap=softcap,
        sinks=s_aux,
    )
    return out.view(num_seqs, num_tokens, *out.shape[1:]), None
