"""Decode steps that are recorded and replayed change no greedy token in float32."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from engine_rig import MAX_MODEL_LEN, MAX_NUM_SEQS, EngineRig, load_model, make_requests
from tiny_models import VOCAB_SIZE, build
from torch.fx.experimental.proxy_tensor import make_fx
from zoo import ZOO

from streamwell.engine import own_decoder
from streamwell.engine.decode_graphs import Recording, Replay

pytestmark = pytest.mark.slow

#: On our decoders in PyTorch; experts are chosen by the host.
FAMILIES = [
    name
    for entry in ZOO
    for name, impls in entry.models.items()
    if "torch" in impls and "moe" not in name and name != "mixtral"
]


def trace(compute: Replay) -> Replay:
    """The operations that a step calls, with all that the host had a say in."""
    assert isinstance(compute, partial)
    return partial(make_fx(lambda table: compute.func(table))(*compute.args), *compute.args)


@pytest.mark.parametrize("name", FAMILIES)
def test_replayed_steps_give_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a crowd, with prompts in some steps and preemption."""
    folder, requests = build(name, tmp_path), make_requests(VOCAB_SIZE, count=6)
    eager = EngineRig(load_model(folder, "torch"), pool_tokens=80, budget=11)
    num_replayed = 0

    def record(compute: Replay) -> Replay:
        traced = trace(compute)

        def replay() -> torch.Tensor:
            nonlocal num_replayed
            num_replayed += 1
            return traced()

        return replay

    recording = Recording(record, MAX_NUM_SEQS, MAX_MODEL_LEN)
    monkeypatch.setattr(own_decoder, "_recording", lambda *_: (recording, ()))
    replaying = EngineRig(load_model(folder, "torch"), pool_tokens=80, budget=11)

    assert eager.serve(requests) == replaying.serve(requests, arrivals=Random(1))
    assert num_replayed
