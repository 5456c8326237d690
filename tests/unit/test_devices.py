"""The PyTorch path on another device: a step mixes none, and never waits for what it computes.

The device is PyTorch's `meta`: tensors without values, which refuse to be read, and to meet others.
"""

from __future__ import annotations

from typing import Any

import pytest
from small_decoder import META, VARIED, VOCABULARY, decoder

from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.torch_model import TorchModel

BLOCK_SIZE = 4


def chunk(start: int, num_tokens: int) -> Chunk:
    sequence = Sequence("", [1] * (start + num_tokens), SamplingParams(max_tokens=1))
    sequence.block_ids = [1, 2, 3, 4]
    return Chunk(sequence, start, num_tokens)


@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_step_stays_on_its_device(window: int | None, variations: dict[str, Any]) -> None:
    """Decodes of even and uneven lengths, a new prompt and the rest of one."""
    model = TorchModel(decoder(window, variations), BLOCK_SIZE)
    model.allocate(8)
    for decodes in ([chunk(5, 1), chunk(5, 1)], [chunk(5, 1), chunk(9, 1)]):
        logits = model.forward([*decodes, chunk(0, 6), chunk(4, 5)], [0, 1, 7, 12])

        assert META == logits.device
        assert (4, VOCABULARY) == logits.shape
