"""Any decoder that Transformers loads, on its own modelling code.

Of models that see pictures, too, it is the decoder alone that is asked.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
from pathlib import Path

import torch

from streamwell.engine.attention import Attention
from streamwell.engine.linear import Adapted, Linear, make_linear
from streamwell.engine.native.functions import functions_of
from streamwell.engine.native.linear import PackedLinear, storage_kind
from streamwell.engine.native.tied_head import are_one, replace_both
from streamwell.engine.quantization import head_quantization
from streamwell.engine.state_cache import StatefulAttention, States
from streamwell.engine.transformers_functions import replace_functions, restore_functions
from streamwell.engine.transformers_linears import Packed, in_any_shape, pack_linears
from streamwell.engine.transformers_loading import load
from streamwell.engine.transformers_probe import logits_of, probe

#: Tokens that functions in their place are tried out with, and what logits may differ by at least,
#: of their own size.
_TRIED, _MARGIN = 70, 1e-3


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
        model, self.unused = load(path, dtype, device, trust_remote_code=trust_remote_code)
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
    def use_functions_of(self, helper: ctypes.CDLL) -> bool | None:
        """Have the native helper compute states of whole texts, if it does so as their code does.

        Whether it does so of what follows a state, too, must be tried out. `None`: there is nothing
        that it computes.
        """
        text = torch.arange(1, _TRIED + 1) * (self.vocab_size - 1) // _TRIED
        expected = self.whole_text(text)
        if not replace_functions(self._model, functions_of(helper)):
            return None
        # of all logits together: in bfloat16 a single one may be far off, by any code
        margin = max(_MARGIN, 32 * torch.finfo(self.dtype).eps) * float(expected.norm())
        try:
            error = float((self.whole_text(text) - expected).norm())
        except (RuntimeError, TypeError, ValueError):
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
        if helper is None:
            return pack_linears(self._model, run, _reordered, copies_tied=False)

        def pack(layer: torch.nn.Linear) -> PackedLinear:
            own = head_quantization(quantization) if layer is head else quantization
            fast_pairs = bool(helper.sw_has_fast_pairs())
            kind = storage_kind(layer.weight, own, self.dtype, fast_pairs=fast_pairs)
            return PackedLinear(helper, layer.weight.detach(), layer.bias, kind)

        def make(layer: torch.nn.Linear) -> Linear:
            return in_any_shape(pack(layer), layer.out_features)

        # rounded, embeddings would be others
        keeps_weights = quantization == "none"
        packed = pack_linears(self._model, run, make, copies_tied=not keeps_weights)
        embedding = self._model.get_input_embeddings()
        if keeps_weights and packed.widths and are_one(head, embedding):
            replace_both(head, embedding, pack(head), run)
        return packed

    def new_states(self) -> States:
        """What its layers with a state know of a sequence that has not begun."""
        return States.fresh(self._model.config)

    @torch.inference_mode()
    def whole_text(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Logits `[num_tokens, vocab_size]` of one text by itself, without any cache."""
        return logits_of(self._model, token_ids[None])


def _reordered(layer: torch.nn.Linear) -> Linear:
    return make_linear(layer.weight.detach(), layer.bias)
