"""Any decoder that Transformers loads, on its own modelling code. The only file that knows it.

Our attention function is registered with `AttentionInterface`; what one step needs travels to it
through the model's keyword arguments, so nothing is global.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from streamwell.core.errors import LoadError
from streamwell.engine.attention import Attention, LayerShape, sequence_attention

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


class TransformersDecoder:
    """A Transformers model over paged attention."""

    def __init__(self, path: Path, dtype: torch.dtype, device: torch.device) -> None:
        """Load a local folder.

        Raises:
            LoadError: it cannot be loaded, or its attention is not ours to replace.
        """
        self._model = _load(path, dtype).eval().to(device)
        self.vocab_size: int = self._model.get_input_embeddings().num_embeddings
        self.dtype, self.device = dtype, device
        self.shapes = _probe(self._model)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attention: Attention,
    ) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of `[num_tokens]` ids."""
        output = self._model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=rows,
            attention=attention,
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def _load(path: Path, dtype: torch.dtype) -> Any:  # noqa: ANN401 - Transformers is not typed
    AttentionInterface.register(ATTENTION_NAME, attention_forward)
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation=ATTENTION_NAME,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except _REFUSALS as error:
        raise LoadError(f"cannot load {path}: {error}") from error
    if report["missing_keys"]:  # Transformers would make them up
        raise LoadError(f"{path} lacks weights: {', '.join(sorted(report['missing_keys']))}")
    return model


@torch.inference_mode()
def _probe(model: Any) -> list[LayerShape]:  # noqa: ANN401 - Transformers is not typed
    """Run two tokens through the model and note what every layer would cache.

    Raises:
        LoadError: the model does not route its attention through `AttentionInterface`.
    """
    probe = ShapeProbe()
    ids = torch.zeros((1, 2), dtype=torch.int64, device=model.device)
    positions = torch.arange(2, device=model.device)[None]
    try:
        model(input_ids=ids, position_ids=positions, use_cache=False, attention=probe)
    except (TypeError, NotImplementedError) as error:
        raise LoadError(f"this architecture cannot be served yet: {error}") from error
    expected = model.config.get_text_config().num_hidden_layers
    if sorted(probe.shapes) != list(range(expected)):
        raise LoadError("this architecture cannot be served yet: not all layers are attention")
    return [probe.shapes[layer] for layer in range(expected)]


class ShapeProbe:
    """Stands in for `PagedAttention` once, to learn what each layer would cache."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
    ) -> torch.Tensor:
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[2], value.shape[2])
        return sequence_attention(query, key, value, None, scale)


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention: Attention,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,  # noqa: ANN401 - Transformers passes what each family needs
) -> tuple[torch.Tensor, None]:
    """What Transformers' modelling code calls, with `[1, heads, num_tokens, dim]` tensors.

    Raises:
        NotImplementedError: the model asks for attention we do not have.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    out = attention(
        int(module.layer_idx),  # type: ignore[arg-type]  # every attention module has one
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
    )
    return out[None], None
