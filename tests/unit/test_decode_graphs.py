"""Decode steps that are recorded once and replayed with other inputs: what a GPU's graphs do.

A CPU has no such graphs. Here PyTorch's tracer records a step as the operations that it calls, with
every shape and every number that the host had a say in; a replay knows nothing else.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch
from scheduler_bench import with_prompt
from small_decoder import META, VARIED, VOCABULARY, decoder
from torch.fx.experimental.proxy_tensor import make_fx

from streamwell.engine.attention import Attention, PagedAttention, PagedCache
from streamwell.engine.batch_layout import BatchLayout, DecodeRows
from streamwell.engine.decode_graphs import DecodeGraphs, Record, Recording, Replay, work
from streamwell.engine.sequence import Chunk
from streamwell.engine.torch_model import TorchModel

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 16, 400
MAX_NUM_SEQS, MAX_MODEL_LEN = 5, 600


def lay_out_decodes(cache: PagedCache, positions: torch.Tensor, blocks: torch.Tensor) -> Attention:
    """With PyTorch's attention, in operations alone: without a look at a number."""
    count, places = len(blocks), torch.arange(cache.block_size, device=blocks.device)
    slots = (blocks.long()[:, :, None] * cache.block_size + places).flatten(1)
    new_slots = slots.gather(1, positions.long()[:, None])[:, 0]
    lengths, length = positions.long() + 1, slots.shape[1]
    behind = torch.arange(length, device=blocks.device) >= lengths[:, None]
    slots = slots.masked_fill(behind, 0).view(-1)
    rows = DecodeRows(slice(0, count), count, lengths, slots, length, is_even=False)
    return PagedAttention(cache, BatchLayout(new_slots, (rows,), ()))


class Tracer:
    """A `Record` that counts."""

    def __init__(self) -> None:
        self.num_recorded = 0

    def __call__(self, compute: Replay) -> Replay:
        self.num_recorded += 1
        assert isinstance(compute, partial)
        with torch.no_grad():
            traced = make_fx(lambda table: compute.func(table))(*compute.args)
        return partial(traced, *compute.args)


def fail(_compute: Replay) -> Replay:
    raise torch.OutOfMemoryError("no room for a graph")


def model_of(
    record: Record | None = None,
    window: int | None = None,
    variations: dict[str, Any] | None = None,
) -> TorchModel:
    """The same weights at every call, and a cache full of what is not finite."""
    torch.manual_seed(0)
    recording = record and Recording(record, lay_out_decodes, MAX_NUM_SEQS, MAX_MODEL_LEN)
    model = TorchModel(decoder(window, variations or {}, CPU), BLOCK_SIZE, recording=recording)
    model.allocate(NUM_BLOCKS)
    for side in (*model._cache.keys, *model._cache.values):
        side[BLOCK_SIZE:] = torch.nan
    return model


def decodes(rng: random.Random, lengths: list[int]) -> list[Chunk]:
    """The last token of sequences of these lengths; blocks in any order."""
    sizes = [-(-length // BLOCK_SIZE) for length in lengths]
    free = rng.sample(range(1, NUM_BLOCKS + 1), sum(sizes))
    chunks = []
    for number, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        seq = with_prompt(str(number), [rng.randrange(VOCABULARY) for _ in range(length)])
        seq.block_ids = [free.pop() for _ in range(size)]
        chunks.append(Chunk(seq, length - 1, 1))
    return chunks


def prefill(model: TorchModel, chunks: list[Chunk]) -> None:
    """Compute what comes before these chunks."""
    for chunk in chunks:
        if chunk.start:
            model.forward([Chunk(chunk.seq, 0, chunk.start)], [])


def logits_of(model: TorchModel, chunks: list[Chunk]) -> torch.Tensor:
    return model.forward(chunks, list(range(len(chunks)))).clone()


@pytest.mark.slow
@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 5])
@torch.inference_mode()
def test_a_replay_is_the_step(window: int | None, variations: dict[str, Any]) -> None:
    """Logits and cache, whoever decodes; all is recorded before the first of them."""
    rng, tracer = random.Random(7), Tracer()
    eager, replayed = (model_of(record, window, variations) for record in (None, tracer))
    for _ in range(8):
        lengths = [rng.choice([1, 2, 16, 17, 300, 600]) for _ in range(rng.randint(1, 5))]
        chunks = decodes(rng, lengths)
        for model in (eager, replayed):
            prefill(model, chunks)
        expected, got = (logits_of(model, chunks) for model in (eager, replayed))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        for name in ("keys", "values"):
            (ours,), (theirs,) = (getattr(model._cache, name) for model in (replayed, eager))
            torch.testing.assert_close(ours, theirs, equal_nan=True, atol=1e-4, rtol=1e-4)
            assert not ours[:BLOCK_SIZE].any(), "block 0 stays zero"
    assert 4 == tracer.num_recorded, "1 to 8 sequences, of any length"


@torch.inference_mode()
def test_tokens_may_be_on_the_device() -> None:
    """Of sequences whose last token the host does not know; with a graph, or without."""
    rng = random.Random(4)
    told, untold, unrecorded = model_of(), model_of(lambda compute: compute), model_of()
    chunks = decodes(rng, [3, 40, 17])
    for model in (told, untold, unrecorded):
        prefill(model, chunks)
    token_ids = torch.tensor([chunk.token_ids[0] for chunk in chunks])
    expected = logits_of(told, chunks)
    for chunk in chunks:
        del chunk.seq.token_ids[-1]

    for model in (untold, unrecorded):
        got = model.forward_next(chunks, token_ids)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert (True, False) == (untold.runs_ahead, unrecorded.runs_ahead)


@torch.inference_mode()
def test_a_guess_is_the_token_that_is_computed() -> None:
    """A draft model computes what it has guessed, behind a sequence's own tokens."""
    eager, replayed = model_of(), model_of(lambda compute: compute)
    (own,) = decodes(random.Random(5), [9])
    seq = own.seq
    for model in (eager, replayed):
        prefill(model, [own])
        model.forward([own], [])
    expected, other, got = (
        logits_of(model, [Chunk(seq, 9, 1, (guess,))])
        for model, guess in ((eager, 7), (eager, 0), (replayed, 7))
    )

    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(got, other, atol=1e-3)


@torch.inference_mode()
def test_other_steps_are_not_replayed() -> None:
    """With a prompt in them; and of rows that nobody samples from there are no logits."""
    rng = random.Random(2)
    eager, replayed = model_of(), model_of(lambda compute: compute)
    first, second = decodes(rng, [3, 40])
    with_prefill = [first, Chunk(second.seq, 0, 40)]
    for chunks, rows in ((with_prefill, [0, 40]), ([first, second], [1])):
        for model in (eager, replayed):
            prefill(model, [first, second])
        torch.testing.assert_close(
            replayed.forward(chunks, rows), eager.forward(chunks, rows), atol=1e-5, rtol=1e-5
        )


@torch.inference_mode()
def test_what_cannot_be_recorded_is_computed_as_ever() -> None:
    """It is said once, while the model loads, and no more is tried."""
    num_tried = 0

    def fail_the_second(compute: Replay) -> Replay:
        nonlocal num_tried
        num_tried += 1
        return compute if num_tried == 1 else fail(compute)

    eager = model_of()
    with pytest.warns(UserWarning, match="no room for a graph"):
        failing = model_of(fail_the_second)
    chunks = decodes(random.Random(3), [9])
    for model in (eager, failing):
        prefill(model, chunks)
    assert torch.equal(logits_of(eager, chunks), logits_of(failing, chunks))
    assert 2 == num_tried
    with pytest.warns(UserWarning, match="no room for a graph"):
        assert not model_of(fail).runs_ahead


def test_whether_they_work_is_tried_out() -> None:
    """Neither what cannot be recorded does, nor what gives something else, or always the same."""
    lean = decoder(None, {}, CPU)

    def forget(compute: Replay) -> Replay:
        result = torch.zeros_like(compute())
        return lambda: result

    def repeat(compute: Replay) -> Replay:
        result = compute()
        return lambda: result

    assert work(lean, BLOCK_SIZE, Tracer(), lay_out_decodes)
    assert not work(lean, BLOCK_SIZE, forget, lay_out_decodes)
    assert not work(lean, BLOCK_SIZE, repeat, lay_out_decodes)
    with pytest.warns(UserWarning, match="no room for a graph"):
        assert not work(lean, BLOCK_SIZE, fail, lay_out_decodes)


@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_recorded_step_reads_nothing_of_its_device(
    window: int | None, variations: dict[str, Any]
) -> None:
    """While a GPU records, the host may not wait for it. The device here has no values at all."""
    lean = decoder(window, variations, META)
    cache = PagedCache(lean.shapes, 8, 4, lean.dtype, META)
    graphs = DecodeGraphs(lean, cache, Recording(lambda compute: compute, lay_out_decodes, 3, 10))
    seq = with_prompt("0", [1] * 10)
    seq.block_ids = [1, 2, 3]
    logits = graphs.forward([Chunk(seq, 9, 1)] * 3)

    assert logits is not None
    assert META == logits.device
    assert (3, VOCABULARY) == logits.shape
