"""Builds an encoder-decoder from a folder's configs and weights, and tries it out."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from streamwell.core.errors import LoadError
from streamwell.core.types import SamplingParams
from streamwell.engine.messages import EngineConfig
from streamwell.engine.seq2seq.families import Config, describe, our_name
from streamwell.engine.seq2seq.model import Seq2SeqModel
from streamwell.engine.sequence import Chunk, Sequence


def check_options(config: EngineConfig) -> None:
    """Refuse what only decoders have.

    Raises:
        LoadError: with the flag's name.
    """
    obstacles = {
        f"--model-impl {config.model_impl}": config.model_impl not in ("auto", "torch"),
        "--compile": config.compile,
        f"--quantization {config.quantization}": config.quantization != "none",
    }
    for flag, is_given in obstacles.items():
        if is_given:
            raise LoadError(f"{flag} does not work with encoder-decoders")


@torch.inference_mode()
def build(
    config: Config,
    generation_config: Config,
    weights: Mapping[str, torch.Tensor],
    block_size: int,
    max_model_len: int,
) -> Seq2SeqModel:
    """A model that gives finite logits; it has no cache yet.

    Args:
        config: `config.json`.
        generation_config: `generation_config.json`; may be empty.
        weights: as they are named in the folder, in the dtype and on the device that compute.
        block_size: tokens per block of the cache.
        max_model_len: the most tokens of an input, and of what the decoder sees of its own.

    Raises:
        LoadError: the family is not known, or the model does not work.
    """
    spec = describe(config, generation_config)
    named = {our_name(spec.names, name): weight for name, weight in weights.items()}
    model = Seq2SeqModel(spec, named, block_size, max_model_len)
    _try_out(model)
    return model


def _try_out(model: Seq2SeqModel) -> None:
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
