"""Sequences without a scheduler, and logits of single steps."""

from __future__ import annotations

import tiny_seq2seq
import torch

from streamwell.core.types import SamplingParams
from streamwell.engine.model_runner import Model
from streamwell.engine.sequence import Chunk, Sequence

#: Around those of blocks and tiles.
LENGTHS, INPUT_LENGTHS = (1, 41, 17, 64, 30), (5, 64, 16, 1, 33)
#: Blocks of each sequence, and of its input.
NUM_BLOCKS = 4


def make_sequences(name: str) -> list[Sequence]:
    """Each in cache blocks of its own."""
    generator = torch.Generator().manual_seed(3)
    sequences = []
    for i, (length, input_length) in enumerate(zip(LENGTHS, INPUT_LENGTHS, strict=True)):
        ids = torch.randint(3, 299, (128,), generator=generator).tolist()
        is_decoder = name not in tiny_seq2seq.CONFIGS
        sequence = Sequence(
            str(i),
            ids[:length],
            SamplingParams(max_tokens=1),
            encoder_ids=() if is_decoder else tuple(ids[-input_length:]),
        )
        own, cross = 1 + NUM_BLOCKS * i, 1 + NUM_BLOCKS * (len(LENGTHS) + i)
        sequence.block_ids = list(range(own, own + NUM_BLOCKS))
        sequence.cross_block_ids = list(range(cross, cross + NUM_BLOCKS))
        sequences.append(sequence)
    return sequences


@torch.inference_mode()
def last_logits(model: Model, chunks: list[Chunk]) -> torch.Tensor:
    """Of the last token of each chunk."""
    ends = torch.tensor([chunk.num_tokens for chunk in chunks]).cumsum(0) - 1
    return model.forward(chunks, ends.tolist()).clone()


def whole(sequence: Sequence) -> Chunk:
    return Chunk(sequence, 0, sequence.num_tokens)
