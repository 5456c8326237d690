"""Any decoder that Transformers loads, on its own modelling code. The only file that knows it.

Of models that see pictures, too, it is the decoder alone that is asked.

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
from streamwell.engine.attention import Attention, LayerShape, sequence_attention
from streamwell.engine.linear import Adapted
from streamwell.models.weights import max_elements

#: The name under which Transformers finds `attention_forward`.
ATTENTION_NAME = "streamwell_paged"
_NOT_YET = "this architecture cannot be served yet"
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


class TransformersDecoder:
    """A Transformers model over paged attention."""

    def __init__(
        self,
        path: Path,
        dtype: torch.dtype,
        device: torch.device,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        """Load a local folder; code in it is run only if it is trusted.

        Raises:
            LoadError: it cannot be loaded, or its attention is not ours to replace.
        """
        model = _load(path, dtype, device, trust_remote_code=trust_remote_code)
        self._model = model.eval() if hasattr(model, "hf_device_map") else model.eval().to(device)
        self.dtype, self.device = dtype, device
        self.shapes, num_logits = _probe(self._model)
        # an id beside the embeddings, or the logits, is one too many
        self.vocab_size = min(self._model.get_input_embeddings().num_embeddings, num_logits)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attention: Attention,
        adapted: Adapted | None = None,
    ) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of `[num_tokens]` ids; no adapters."""
        output = self._model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=rows,
            attention=attention,
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def _load(path: Path, dtype: torch.dtype, device: torch.device, *, trust_remote_code: bool) -> Any:  # noqa: ANN401 - Transformers is not typed
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
        is_about_us = ATTENTION_NAME in str(error)
        reason = "its attention cannot be replaced" if is_about_us else error
        raise LoadError(f"cannot load {path}: {reason}") from error
    if report["missing_keys"]:  # Transformers would make them up
        raise LoadError(f"{path} lacks weights: {', '.join(sorted(report['missing_keys']))}")
    return model


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


@torch.inference_mode()
def _probe(model: Any) -> tuple[list[LayerShape], int]:  # noqa: ANN401 - Transformers is not typed
    """Run two tokens through the model: what every layer would cache, and how many logits it has.

    Raises:
        LoadError: the model does not route its attention through `AttentionInterface`, or its
            answers hang on something else that we do not have.
    """
    last = model.get_input_embeddings().num_embeddings - 1
    for token_id in (0, last // 2, last):  # one embedding may be damaged, or that of padding
        ids, probe = torch.tensor([[token_id] * 2], device=model.device), ShapeProbe()
        logits = _try(model, ids, probe, torch.arange(2))
        if logits.amax().isfinite():
            break
    else:
        raise LoadError("the model's logits are not finite: its weights are damaged")
    config = model.config.get_text_config()
    if not getattr(config, "is_causal", True):  # the mask says it, which is not asked for
        raise LoadError(f"{_NOT_YET}: its tokens look at those after them")
    if sorted(probe.shapes) != list(range(config.num_hidden_layers)):
        raise LoadError(f"{_NOT_YET}: not all layers are attention")
    _check_windows(config, probe)
    _check_positions(model, ids, logits)
    return [probe.shapes[layer] for layer in range(config.num_hidden_layers)], logits.shape[-1]


def _try(
    model: Any,  # noqa: ANN401 - Transformers is not typed
    token_ids: torch.Tensor,
    probe: ShapeProbe,
    positions: torch.Tensor | None,
) -> torch.Tensor:
    """Logits `[num_tokens, vocab_size]`. Raises `LoadError`."""
    options = {} if positions is None else {"position_ids": positions[None].to(model.device)}
    try:
        out = model(input_ids=token_ids, use_cache=False, attention=probe, **options)
    except (TypeError, NotImplementedError) as error:
        raise LoadError(f"{_NOT_YET}: {error}") from error
    logits: torch.Tensor = out.logits[0]
    return logits


def _check_positions(model: Any, token_ids: torch.Tensor, logits: torch.Tensor) -> None:  # noqa: ANN401
    """Positions have to count from 0, and to be those that we give, since a step has many texts.

    Of two tokens that are the same, attention alone makes the same: what differs is positions.
    """
    if not _is_near(_try(model, token_ids, ShapeProbe(), None), logits):
        raise LoadError(f"{_NOT_YET}: its positions do not count from 0")
    moved = _try(model, token_ids, ShapeProbe(), torch.tensor([0, 2]))
    if torch.equal(moved, logits) and not _is_near(logits[0], logits[1]):
        raise LoadError(f"{_NOT_YET}: it counts positions by itself")


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    margin = 16 * torch.finfo(one.dtype).eps * float(other.abs().amax())
    return float((one - other).abs().amax()) <= margin


def _check_windows(config: Any, probe: ShapeProbe) -> None:  # noqa: ANN401 - not typed
    """Some modelling code leaves what a layer sees to masks, which we do not have."""
    window = getattr(config, "sliding_window", None)
    expected = {"full_attention": None, "sliding_attention": window}
    kinds = getattr(config, "layer_types", None)
    for layer, kind in enumerate(kinds or ()):
        if kind not in expected or probe.windows[layer] != expected[kind]:
            raise LoadError(f"{_NOT_YET}: layers of {kind}")
    is_narrow = window is not None and window < config.max_position_embeddings
    if not kinds and is_narrow and window not in probe.windows.values():
        raise LoadError(f"{_NOT_YET}: its sliding window is in its masks alone")


class ShapeProbe:
    """Stands in for `PagedAttention` once, to learn what each layer would cache."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if layer in self.shapes:
            raise NotImplementedError("a layer that attends twice")
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[2], value.shape[2])
        self.windows[layer] = window
        return sequence_attention(query, key, value, None, scale, softcap, sinks)


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
    out = attention(
        int(module.layer_idx),  # type: ignore[arg-type]  # every attention module has one
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=window or None,
        softcap=softcap,
        sinks=s_aux,
    )
    return out[None], None
