"""Attention over the paged cache in Triton: each program reads a sequence's blocks in place.

Queries are laid out in tiles, each of some tokens of one sequence. A program computes a tile for
one head of keys or of queries, or only a part of the places that it sees. What one row adds up is
no other's affair, but a row's own parts depend on how many rows there are.

Softmax as it goes after Milakov and Gimelshein 2018, "Online normalizer calculation for softmax";
tiles after Dao 2023, "FlashAttention-2"; parts after Dao et al. 2023, "Flash-Decoding".
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Numbers that describe a tile: its sequence's row in the table of blocks, its first row in the
#: batch, the position of that, and how many tokens it has.
TILE_FACTS = tl.constexpr(4)
#: exp(x) = exp2(x * LOG2_E), and GPUs compute the latter.
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def write_kernel(
    key, value, keys, values, slots, key_stride, value_stride,
    KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """A program copies the keys and values of a token, as many numbers of each, into its slot."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    at = tl.arange(0, SPAN)
    is_key, is_value = at < KEY_SIZE, at < VALUE_SIZE
    tl.store(keys + slot * KEY_SIZE + at, tl.load(key + row * key_stride + at, is_key), is_key)
    found = tl.load(value + row * value_stride + at, is_value)
    tl.store(values + slot * VALUE_SIZE + at, found, is_value)


# the table's width changes with the longest context, and is worth no kernel of its own
@triton.jit(do_not_specialize=["width"])
def attend_kernel(
    query, keys, values, out, peaks, sums, tiles, blocks, sinks, query_stride, width, scale,
    softcap, WINDOW: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
    HEADS: tl.constexpr, GROUP: tl.constexpr, NUM_HEADS: tl.constexpr, KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, KEY_SPAN: tl.constexpr, VALUE_SPAN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, PLACES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A program computes a tile for `HEADS` query heads, which share a head of keys.

    With `PARTS`, `out` takes what a part makes of its places, `[rows, heads, parts, value_dim]`,
    with the highest score and the sum of weights of each; `join_kernel` puts them together.
    """
    tile, first_head, part = tl.program_id(0), tl.program_id(1) * HEADS, tl.program_id(2)
    facts = tiles + tile * TILE_FACTS
    table = blocks + tl.load(facts).to(tl.int64) * width
    row, position, count = tl.load(facts + 1), tl.load(facts + 2), tl.load(facts + 3)
    at = tl.arange(0, ROWS)
    token, head = at // HEADS, first_head + at % HEADS
    is_row = token < count
    begin, end = _places_of_part(position, position + count, part, WINDOW, PLACES, PARTS)
    q = _vectors(query, (row + token).to(tl.int64) * query_stride, head, is_row, KEY_DIM, KEY_SPAN)
    peak, total = _beginning(sinks, head, is_row, part, HAS_SINKS, ROWS)
    summed = tl.zeros((ROWS, VALUE_SPAN), tl.float32)
    for first in range(begin, end, PLACES):
        place = first + tl.arange(0, PLACES)
        # what another sequence left in a block may not even be finite: it is never read
        is_place = place < end
        block = tl.load(table + place // BLOCK_SIZE, is_place, 0).to(tl.int64)
        slot = (block * BLOCK_SIZE + place % BLOCK_SIZE) * (NUM_HEADS // GROUP)
        k = _vectors(keys, slot * KEY_DIM, first_head // GROUP, is_place, KEY_DIM, KEY_SPAN)
        v = _vectors(values, slot * VALUE_DIM, first_head // GROUP, is_place, VALUE_DIM, VALUE_SPAN)
        scores = _scores(q, k, place, is_place, position + token, scale, softcap, WINDOW, HAS_CAP)
        higher = tl.maximum(peak, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights, decay = tl.exp2(scores - base[:, None]), tl.exp2(peak - base)
        total = total * decay + tl.sum(weights, 1)
        summed = summed * decay[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        peak = higher
    result = (row + token).to(tl.int64) * NUM_HEADS + head
    if PARTS == 1:
        summed = summed / total[:, None]
    else:
        result = result * PARTS + part
        tl.store(peaks + result, peak, is_row)
        tl.store(sums + result, total, is_row)
    dims = tl.arange(0, VALUE_SPAN)
    tl.store(
        out + result[:, None] * VALUE_DIM + dims[None, :],
        summed.to(out.dtype.element_ty),
        is_row[:, None] & (dims < VALUE_DIM)[None, :],
    )


@triton.jit
def join_kernel(
    parts, peaks, sums, out,
    VALUE_DIM: tl.constexpr, VALUE_SPAN: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A program puts the parts of one row and query head together."""
    row = tl.program_id(0).to(tl.int64)
    part, dims = row * PARTS + tl.arange(0, PARTS), tl.arange(0, VALUE_SPAN)
    is_dim = dims < VALUE_DIM
    peak = tl.load(peaks + part)
    # a part that had no places has a weight of zero, and zeros to weigh
    weight = tl.exp2(peak - tl.max(peak, 0))
    total = tl.sum(weight * tl.load(sums + part), 0)
    found = tl.load(parts + part[:, None] * VALUE_DIM + dims[None, :], is_dim[None, :], 0.0)
    joined = tl.sum(found * weight[:, None], 0) / total
    tl.store(out + row * VALUE_DIM + dims, joined.to(out.dtype.element_ty), is_dim)


@triton.jit
def _beginning(sinks, head, is_row, part, HAS_SINKS: tl.constexpr, ROWS: tl.constexpr):
    """The highest score, times LOG2_E, and the sum of weights of rows that have seen no place.

    A sink counts once: in the first part.
    """
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + head, is_row, 0.0).to(tl.float32) * _LOG2_E
        peak, total = tl.where(part == 0, sink, peak), tl.where(part == 0, 1.0, total)
    return peak, total


@triton.jit
def _scores(
    q, k, place, is_place, own, scale, softcap, WINDOW: tl.constexpr, HAS_CAP: tl.constexpr
):
    """`[rows, places]`, times LOG2_E; minus infinity where a row's own place does not see one."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if HAS_CAP:  # softcap * tanh(scores / softcap)
        scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
    is_seen = is_place[None, :] & (place[None, :] <= own[:, None])
    if WINDOW > 0:
        is_seen = is_seen & (place[None, :] > own[:, None] - WINDOW)
    return tl.where(is_seen, scores * _LOG2_E, float("-inf"))


@triton.jit
def _vectors(numbers, starts, head, is_there, DIM: tl.constexpr, SPAN: tl.constexpr):
    """`[rows, SPAN]` of heads of `DIM` numbers; the rest is zero, and so are rows not there."""
    dims = tl.arange(0, SPAN)
    pointers = numbers + (starts + head * DIM)[:, None] + dims[None, :]
    return tl.load(pointers, is_there[:, None] & (dims < DIM)[None, :], 0.0)


@triton.jit
def _places_of_part(
    position, end, part, WINDOW: tl.constexpr, PLACES: tl.constexpr, PARTS: tl.constexpr
):
    """First place and the one after the last; none, if there are more parts than work."""
    begin = tl.maximum(position - WINDOW + 1, 0) if WINDOW > 0 else 0
    if PARTS > 1:
        share = tl.cdiv(tl.cdiv(end - begin, PARTS), PLACES) * PLACES
        begin = begin + part * share
        end = tl.minimum(begin + share, end)
    return begin, end
