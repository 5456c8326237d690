"""Decode steps that are replayed, and launched ahead, change no greedy token in float32.

A CPU records nothing and is never ahead; what a GPU would be told is what counts here.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from engine_rig import MAX_MODEL_LEN, MAX_NUM_SEQS, EngineRig, load_model, make_requests
from tiny_models import VOCAB_SIZE, build
from zoo import ZOO

from streamwell.core.types import SamplingParams
from streamwell.engine import own_decoder
from streamwell.engine.attention import Attention, PagedCache
from streamwell.engine.decode_graphs import Recording, Replay
from streamwell.engine.kernel_choice import Kernels
from streamwell.engine.model_runner import ModelRunner
from streamwell.engine.operations import IN_PYTORCH
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.torch_model import paged_attention

pytestmark = pytest.mark.slow

#: On our decoders in PyTorch; experts are chosen by the host.
FAMILIES = [
    name
    for entry in ZOO
    for name, impls in entry.models.items()
    if "torch" in impls and "moe" not in name and name != "mixtral"
]


def lay_out_decodes(cache: PagedCache, positions: torch.Tensor, blocks: torch.Tensor) -> Attention:
    """With PyTorch's attention, from the tables that a graph reads."""
    params = SamplingParams(max_tokens=1)
    chunks = [
        Chunk(Sequence("", [0] * (position + 1), params, block_ids=row), position, 1)
        for position, row in zip(positions.tolist(), blocks.tolist(), strict=True)
    ]
    return paged_attention(cache, chunks)


@pytest.mark.parametrize("name", FAMILIES)
def test_replayed_steps_give_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a crowd, with prompts in some steps and preemption."""
    folder, requests = build(name, tmp_path), make_requests(VOCAB_SIZE, count=6)
    expected = EngineRig(load_model(folder, "torch"), pool_tokens=80, budget=11).serve(requests)
    num_replayed = num_ahead = 0

    def record(compute: Replay) -> Replay:
        def replay() -> torch.Tensor:
            nonlocal num_replayed
            num_replayed += 1
            return compute()

        return replay

    def launch_next(*args: Any) -> Any:  # noqa: ANN401 - as it is
        nonlocal num_ahead
        num_ahead += 1
        return launch(*args)

    launch = ModelRunner.launch_next
    monkeypatch.setattr(ModelRunner, "launch_next", launch_next)
    kernels = Kernels(IN_PYTORCH, paged_attention, lay_out_decodes)
    recording = Recording(record, lay_out_decodes, MAX_NUM_SEQS, MAX_MODEL_LEN)
    monkeypatch.setattr(own_decoder, "choose_kernels", lambda *_: (kernels, ()))
    monkeypatch.setattr(own_decoder, "_recording", lambda *_: (recording, ()))
    model = load_model(folder, "torch")
    crowded, roomy = EngineRig(model, pool_tokens=80, budget=11), EngineRig(model)

    assert expected == crowded.serve(requests, arrivals=Random(1))
    assert num_replayed
    assert expected == roomy.serve(requests)
    assert num_ahead
