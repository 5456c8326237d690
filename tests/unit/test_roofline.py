"""The arithmetic of `bench.roofline`, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bench.cases import Case
from bench.roofline import (
    Machine,
    ModelSize,
    bound,
    decode_bound,
    model_size,
    prefill_bound,
    read_measured,
    served_bound,
    table,
)

#: A thousand weights, of which prefill needs a tenth once; 8 cached numbers per token.
SIZE = ModelSize(
    num_weights=1000, num_last_row_weights=100, num_layers=2, cached_per_token=8, attention_width=4
)
#: Reads slowly, computes fast; and the other way round.
SLOW_MEMORY = Machine(1000.0, {"float32": 1e9, "bfloat16": 1e9, "int8": 1e9})
SLOW_COMPUTE = Machine(1e12, {"float32": 2000.0, "bfloat16": 1000.0, "int8": 8000.0})


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("float32", 0.25), ("bfloat16", 0.5), ("int8", 1.0), ("int4", 1 / 0.5625)],
)
def test_one_stream_waits_for_the_weights(precision: str, expected: float) -> None:
    """Without a context a step takes as long as its weights take to be read."""
    assert expected == pytest.approx(decode_bound(SIZE, SLOW_MEMORY, precision, 1, 0))


def test_the_cache_is_read_for_each_stream() -> None:
    """Weights are read once for all streams, the cache is not: 4000 bytes and 10 x 10 x 32."""
    assert 10 / 7.2 == pytest.approx(decode_bound(SIZE, SLOW_MEMORY, "float32", 10, 10))


def test_many_streams_wait_for_the_arithmetic() -> None:
    """Two operations per weight and stream, and 4 x layers x width per token of context."""
    flop = 2 * 1000 + 4 * 2 * 4 * 5

    assert 2000 / flop == pytest.approx(decode_bound(SIZE, SLOW_COMPUTE, "float32", 50, 5))


def test_weights_may_be_widened() -> None:
    """Where bfloat16 is emulated its bound takes float32's rate, but never the other way round."""
    assert 2000.0 == SLOW_COMPUTE.fastest_matmul("float32")
    assert 2000.0 == SLOW_COMPUTE.fastest_matmul("bfloat16")
    assert 8000.0 == SLOW_COMPUTE.fastest_matmul("int4")


def test_prefill_needs_the_output_layer_once() -> None:
    """All other weights for each token, attention to half of the prompt on average.

    Of two blocks, all tokens need the attention of the first, and only one that of the last.
    """
    flop = 2 * 900 * 10 + (4 * 4 * 10) * 10 / 2 + 2 * 100 + 4 * 4 * 10

    assert 10 * 2000 / flop == pytest.approx(prefill_bound(SIZE, SLOW_COMPUTE, "float32", 10))


def test_what_is_served_has_to_be_computed() -> None:
    """A prompt of ten tokens, whose last one brings the first of three new ones."""
    prefill_s = 10 / prefill_bound(SIZE, SLOW_COMPUTE, "float32", 10)
    flop = 2 * (2 * 1000 + 4 * 2 * 4 * 11)

    assert 3 / (prefill_s + flop / 2000) == pytest.approx(
        served_bound(SIZE, SLOW_COMPUTE, "float32", 10, 3)
    )


def test_a_bound_bears_the_name_of_its_figure() -> None:
    """So that it can stand in the same table as the engines."""
    assert ["prefill_tok_s"] == list(bound(SIZE, SLOW_MEMORY, "int8", Case(1, 512, 1)))
    assert ["decode_tok_s"] == list(bound(SIZE, SLOW_MEMORY, "int8", Case(8)))


def test_the_table_has_our_share() -> None:
    """What was measured stands beside the bound, in per cent of it."""
    speed = Machine(1e6, {"float32": 1e9})
    limit = decode_bound(SIZE, speed, "float32", 1, Case(1).prompt_tokens + 16)
    rows = table(SIZE, speed, [Case(1)], {"float32 1 streams": limit / 2})
    (name, cell, *others), (served, *_) = rows

    assert ("1 streams", "served") == (name, served)
    assert cell.endswith(": 50 %)")
    assert not any("%" in other for other in others)


@pytest.mark.parametrize(("tied", "expected"), [(True, 50), (False, 50)])
def test_weights_are_counted_in_the_files(tmp_path: Path, tied: bool, expected: int) -> None:
    """An untied embedding is only looked up; a tied one is the output layer, read every step.

    Prefill needs it for one row, as what follows the keys and values of the last of three blocks.
    """
    tensors = {
        "model.embed_tokens.weight": torch.zeros(5, 4),
        "model.layers.1.mlp.up_proj.weight": torch.zeros(15),
        "model.layers.2.self_attn.k_proj.weight": torch.zeros(8),
        "model.layers.2.mlp.up_proj.weight": torch.zeros(7),
    }
    if not tied:
        tensors["lm_head.weight"] = torch.zeros(5, 4)
    save_file(tensors, tmp_path / "model.safetensors")
    config = {"num_attention_heads": 2, "hidden_size": 4, "num_hidden_layers": 3}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")

    assert ModelSize(expected, 27, 3, 2 * 3 * 2 * 2, 4) == model_size(tmp_path)


@pytest.mark.parametrize(("case", "dtype"), [("8 streams", "int8"), ("int8 8 streams", "float32")])
def test_measured_figures_are_read(tmp_path: Path, case: str, dtype: str) -> None:
    """The precision stands in the case (`bench.peers`), or is that of the run (`bench.engine`)."""
    lines = [
        {"case": case, "contender": "streamwell", "cells": {"decode_tok_s": [1.0, 9.0, 3.0]}},
        {"case": case, "contender": "peer", "cells": {"decode_tok_s": [7.0]}},
    ]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"machine": {"dtype": dtype}, "summary": lines}), encoding="utf-8")

    assert {"int8 8 streams": 3.0} == read_measured(path, "streamwell")
