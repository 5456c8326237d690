"""Any decoder that Transformers loads, on its own modelling code. The only file that knows it.

Of models that see pictures, too, it is the decoder alone that is asked.

Our attention function is registered with `AttentionInterface`; what one step needs travels to it
through the model's keyword arguments, so nothing is global.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
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
from streamwell.engine.linear import Adapted, Linear, make_linear
from streamwell.engine.native.functions import functions_of
from streamwell.engine.native.linear import PackedLinear, storage_kind
from streamwell.engine.quantization import head_quantization
from streamwell.engine.state_cache import StatefulAttention, States
from streamwell.engine.transformers_functions import replace_functions, restore_functions
from streamwell.engine.transformers_linears import Packed, in_any_shape, pack_linears
from streamwell.engine.transformers_probe import logits_of, probe
from streamwell.models.claims import walk
from streamwell.models.small_files import read_object
from streamwell.models.weights import max_elements

#: The name under which Transformers finds `attention_forward`.
ATTENTION_NAME = "streamwell_paged"
#: Tokens that functions in their place are tried out with, and what they may differ by: as much of
#: the largest logit.
_TRIED, _MARGIN = 70, 1e-3
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
        #: Names of weights in the folder that the code has no use for.
        self.unused: list[str]
        model, self.unused = _load(path, dtype, device, trust_remote_code=trust_remote_code)
        self._model = model.eval() if hasattr(model, "hf_device_map") else model.eval().to(device)
        self.dtype, self.device = dtype, device
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.layers_with_state = States.layers_with_state(model.config)
        self.shapes, num_logits = probe(self._model, self.layers_with_state)
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
        states = attention.states if isinstance(attention, StatefulAttention) else None
        is_batch = isinstance(attention, StatefulAttention) and attention.is_batch
        shape = (-1, 1) if is_batch else (1, -1)
        output = self._model(
            input_ids=token_ids.view(shape),
            position_ids=positions.view(shape),
            use_cache=states is not None,
            logits_to_keep=1 if is_batch else rows,
            attention=attention,
            **({} if states is None else {self._cache_name: states.cache}),
        )
        logits: torch.Tensor = output.logits[:, 0] if is_batch else output.logits[0]
        # some code computes all of them, whatever is to be kept
        return logits if len(logits) == len(rows) and not is_batch else logits[rows]

    @torch.inference_mode()
    def use_functions_of(self, helper: ctypes.CDLL) -> bool:
        """Have the native helper compute states of whole texts, if it does so as their code does.

        Whether it does so of what follows a state, too, must be tried out.
        """
        text = torch.arange(1, _TRIED + 1) * (self.vocab_size - 1) // _TRIED
        expected = self.whole_text(text)
        if not replace_functions(self._model, functions_of(helper)):
            return False
        margin = max(_MARGIN, 16 * torch.finfo(self.dtype).eps) * float(expected.abs().amax())
        try:
            error = float((self.whole_text(text) - expected).abs().amax())
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            error = math.inf
        if error <= margin:
            return True
        self.use_own_functions()
        return False

    def use_own_functions(self) -> None:
        """Have Transformers' code compute all states."""
        restore_functions(self._model)

    @torch.inference_mode()
    def pack(self, quantization: str, helper: ctypes.CDLL | None) -> Packed:
        """Pack the linear layers for this CPU, in the native helper if there is one.

        With a quantization it rounds them, the output layer to eight bits at least.
        """
        run = functools.partial(self.whole_text, torch.zeros(2, dtype=torch.int64))
        head = self._model.get_output_embeddings()
        fast_pairs = helper is None or bool(helper.sw_has_fast_pairs())

        def make(layer: torch.nn.Linear) -> Linear:
            if helper is None:
                return make_linear(layer.weight.detach(), layer.bias)
            own = head_quantization(quantization) if layer is head else quantization
            kind = storage_kind(layer.weight, own, self.dtype, fast_pairs=fast_pairs)
            packed = PackedLinear(helper, layer.weight.detach(), layer.bias, kind)
            return in_any_shape(packed, layer.out_features)

        return pack_linears(self._model, run, make, copies_tied=quantization != "none")

    def new_states(self) -> States:
        """What its layers with a state know of a sequence that has not begun."""
        return States.fresh(self._model.config)

    @torch.inference_mode()
    def whole_text(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Logits `[num_tokens, vocab_size]` of one text by itself, without any cache."""
        return logits_of(self._model, token_ids[None])


def _load(
    path: Path, dtype: torch.dtype, device: torch.device, *, trust_remote_code: bool
) -> tuple[Any, list[str]]:
    """The model, and the names of weights that it has no use for."""
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
