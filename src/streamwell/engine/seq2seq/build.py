"""Builds an encoder-decoder from a folder's configs and weights, and tries it out."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping

import torch

from streamwell.core.errors import LoadError
from streamwell.core.types import SamplingParams
from streamwell.engine.messages import EngineConfig
from streamwell.engine.quantization import in_effect
from streamwell.engine.seq2seq.embeddings import Weights, embedding_weight
from streamwell.engine.seq2seq.families import Config, Seq2SeqSpec, describe, our_name
from streamwell.engine.seq2seq.model import Seq2SeqModel
from streamwell.engine.seq2seq.native_model import NativeSeq2Seq, supports
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.models.claims import check_embeddings

__all__ = [
    "check_options",
    "describe_weights",
    "in_torch",
    "native",
    "quantization_in_effect",
    "supports",
    "unused_layers",
]

_LAYER = re.compile(r"(encoder|decoder)\.(\d+)\.")
_LINEAR = re.compile(r"\.(q|k|v|o|gate|up|down)\.weight$")


def check_options(config: EngineConfig) -> None:
    """Refuse what only decoders have.

    Raises:
        LoadError: with the flag's name.
    """
    obstacles = {
        f"--model-impl {config.model_impl}": config.model_impl == "transformers",
        "--compile": config.compile,
    }
    for flag, is_given in obstacles.items():
        if is_given:
            raise LoadError(f"{flag} does not work with encoder-decoders")


def describe_weights(
    config: Config, generation_config: Config, weights: Mapping[str, torch.Tensor]
) -> tuple[Seq2SeqSpec, Weights]:
    """The spec of a model, and its weights by our names.

    Args:
        config: `config.json`.
        generation_config: `generation_config.json`; may be empty.
        weights: as they are named in the folder.

    Raises:
        LoadError: the family is not known, or the embeddings are of another size than it says.
    """
    spec = describe(config, generation_config)
    named = {our_name(spec.names, name): weight for name, weight in weights.items()}
    check_embeddings(config, embedding_weight(named, "decoder").shape)
    return spec, named


def unused_layers(spec: Seq2SeqSpec, names: Iterable[str]) -> list[str]:
    """Names in the files of what belongs to layers beyond those that the config counts."""
    counts = {"encoder": spec.encoder.num_layers, "decoder": spec.decoder.num_layers}
    ours = ((name, _LAYER.match(our_name(spec.names, name))) for name in names)
    return [name for name, match in ours if match and int(match[2]) >= counts[match[1]]]


def quantization_in_effect(config: EngineConfig, weights: Weights) -> str:
    """What the linear layers are rounded to where the helper runs them."""
    widths = {weight.shape[1] for name, weight in weights.items() if _LINEAR.search(name)}
    return in_effect(config.quantization, widths)


def native(
    helper: ctypes.CDLL,
    config: EngineConfig,
    spec: Seq2SeqSpec,
    weights: Weights,
    max_model_len: int,
    dtype: torch.dtype,
) -> NativeSeq2Seq:
    """A model that the helper runs and that gives finite logits; it has no cache yet.

    Args:
        helper: it `supports` the model.
        config: what was asked for.
        spec: of the model.
        weights: by our names, as they are saved.
        max_model_len: the most tokens of an input, and of what the decoder sees of its own.
        dtype: what linear layers multiply in; the helper does.

    Raises:
        LoadError: the model does not work.
    """
    model = NativeSeq2Seq(
        helper,
        spec,
        weights,
        max_model_len=max_model_len,
        dtype=dtype,
        quantization=config.quantization,
    )
    _try_out(model)
    return model


@torch.inference_mode()
def in_torch(
    spec: Seq2SeqSpec, weights: Weights, block_size: int, max_model_len: int
) -> Seq2SeqModel:
    """The same in PyTorch; the weights are in the dtype and on the device that compute.

    Raises:
        LoadError: the model does not work.
    """
    model = Seq2SeqModel(spec, weights, block_size, max_model_len)
    _try_out(model)
    return model


def _try_out(model: Seq2SeqModel | NativeSeq2Seq) -> None:
    """Let it answer a token: what does not fit together shows before a request does."""
    model.allocate(2)  # a cache of its own: the loader's replaces it
    num_start = len(model.start_ids)
    # one embedding may be damaged, and that of padding often is nothing: others are tried then
    for token_id in (0, model.vocab_size // 2, model.vocab_size - 1):
        sampling = SamplingParams(max_tokens=1)
        seq = Sequence("", list(model.start_ids), sampling, encoder_ids=(token_id,))
        seq.block_ids, seq.cross_block_ids = [1], [2]
        logits = model.forward([Chunk(seq, 0, num_start)], [num_start - 1])
        if bool(logits.amax().isfinite()):
            return
    raise LoadError("the model's logits are not finite: its config or its weights are damaged")
