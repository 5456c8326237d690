"""Chooses the next token of every sequence of a step; each has its own parameters.

Random numbers are counter-based: the draw for a token depends on the run's seed and the token's
index and on nothing else, so there is no state to save, and neither neighbours, preemption nor a
restart change it.

The order of the filters is that of Transformers: penalties, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch.nn.functional import pad

from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import NUM_LIKELIEST, Sampled, Sequence
from streamwell.engine.transfer import Arrival, to_device

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15

#: Below this a temperature is as good as greedy, and dividing by it would overflow.
MIN_TEMPERATURE = 1e-5

#: Tokens whose probabilities are summed before one of them is looked for.
_BLOCK = 128
#: How many times as many of the likeliest tokens are looked at where those before are too few.
_MORE = 16


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) for the `index`-th token of a run.

    SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators") as a
    counter-based generator; the seed is mixed first, so that near seeds do not share a stream.
    """
    mixed = _mix64((_mix64(seed & _MASK) + (index + 1) * _GAMMA) & _MASK)
    return (mixed >> 12) * 2.0**-52


def _mix64(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Drawn:
    """Tokens that have been chosen, or will be when the device gets to it."""

    def __init__(self, token_ids: torch.Tensor) -> None:
        """`[rows]` int64; -1 where the logits are not finite."""
        #: Where the logits are.
        self.token_ids = token_ids
        self._arrival = Arrival(token_ids)

    def sampled(self) -> list[Sampled]:
        """Each row's token, or why there is none; waits for the device."""
        return [
            Sampled(token_id) if token_id >= 0 else Sampled(-1, "the logits are not finite")
            for token_id in self._arrival.wait().tolist()
        ]


class Sampler:
    """Turns logits into token ids."""

    def __init__(self, eos_token_ids: frozenset[int]) -> None:
        self._eos_token_ids = eos_token_ids

    def __call__(
        self,
        logits: torch.Tensor,
        seqs: list[Sequence],
        guesses: list[tuple[int, ...]] | None = None,
    ) -> list[Sampled]:
        """Choose one token per row, as `draw` does, and wait for them."""
        return self.draw(logits, seqs, guesses).sampled()

    def draw(
        self,
        logits: torch.Tensor,
        seqs: list[Sequence],
        guesses: list[tuple[int, ...]] | None = None,
        *,
        num_unknown: int = 0,
    ) -> Drawn:
        """Choose one token per row; a row that cannot be sampled fails alone.

        The host waits for the device only where a row's tokens are cut, but not to a few by top-k.

        Args:
            logits: `[len(seqs), vocab_size]`, float; float32 logits may be changed in place.
            seqs: the sequence of each row.
            guesses: the guessed tokens between each sequence and the token of its row; none if not
                given.
            num_unknown: how many tokens of each sequence are there that nobody knows yet; only for
                sequences whose next token does not depend on them but through the logits.
        """
        logits = logits.float()
        guesses = guesses or [()] * len(seqs)
        indices = [
            seq.num_completion_tokens + num_unknown + len(guessed)
            for seq, guessed in zip(seqs, guesses, strict=True)
        ]
        for row, (seq, guessed) in enumerate(zip(seqs, guesses, strict=True)):
            self._edit(logits, row, seq, guessed, indices[row])
        token_ids = _best(logits)
        rows = [row for row, seq in enumerate(seqs) if seq.sampling.temperature >= MIN_TEMPERATURE]
        if rows and logits.is_cpu:  # elsewhere it is not known yet, and they are drawn for nothing
            known = token_ids.tolist()
            rows = [row for row in rows if known[row] >= 0]
        if rows:
            params = [seqs[row].sampling for row in rows]
            drawn = _draw(_some(logits, rows), params, [indices[row] for row in rows])
            if logits.is_cuda:
                drawn = drawn.where(_some(token_ids, rows) >= 0, -1)
            token_ids = _with_some(token_ids, rows, drawn)
        return Drawn(token_ids)

    def _edit(
        self,
        logits: torch.Tensor,
        row: int,
        seq: Sequence,
        guessed: tuple[int, ...],
        index: int,
    ) -> None:
        """Apply bias, penalties and `min_tokens` to the row of the next token, in place.

        Most rows have none of them, and are not even looked at.
        """
        params = seq.sampling
        if params.logit_bias:
            ids, biases = zip(*params.logit_bias, strict=True)
            logits[row, _places(ids, logits)] += to_device(torch.tensor(biases), logits.device)
        if params.has_penalties:
            _penalise(logits[row], params, seq.token_counts(guessed))
        if index < params.min_tokens:
            ends = sorted({*self._eos_token_ids, *params.stop_token_ids})
            logits[row, _places(ends, logits)] = float("-inf")


def _penalise(logits: torch.Tensor, params: SamplingParams, counts: dict[int, int]) -> None:
    """Change the scores of the tokens that are there, by how often each was generated."""
    ids, times = (
        # NumPy reads many numbers several times as fast as PyTorch
        torch.from_numpy(np.fromiter(numbers, np.int64, len(counts))).to(logits.device)
        for numbers in (counts.keys(), counts.values())
    )
    scores, penalty = logits[ids], params.repetition_penalty
    scores = torch.where(scores > 0, scores / penalty, scores * penalty)
    scores -= params.frequency_penalty * times + params.presence_penalty * (times > 0)
    logits[ids] = scores


def _best(logits: torch.Tensor) -> torch.Tensor:
    """Each row's likeliest token, `[rows]` int64; -1 if it cannot be sampled from."""
    if logits.is_cpu:  # NumPy's search is eight times as fast as PyTorch's
        scores = logits.numpy()
        best = scores.argmax(-1)
        peaks = scores[np.arange(len(best)), best]  # of a row with a NaN, that
        return torch.from_numpy(np.where(np.isfinite(peaks), best, -1))
    token_ids = logits.argmax(-1)
    peaks = logits.gather(1, token_ids[:, None])[:, 0]
    return token_ids.where(peaks.isfinite(), -1)


def _some(tensor: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """These rows, in ascending order; nothing is copied if they are all."""
    return tensor if len(rows) == len(tensor) else tensor[_places(rows, tensor)]


def _with_some(tensor: torch.Tensor, rows: list[int], values: torch.Tensor) -> torch.Tensor:
    """With other values in these rows."""
    if len(rows) == len(tensor):
        return values
    return tensor.index_copy(0, _places(rows, tensor), values)


def _places(rows: Iterable[int], like: torch.Tensor) -> torch.Tensor:
    return to_device(torch.tensor([*rows], dtype=torch.int64), like.device)


def _draw(logits: torch.Tensor, params: list[SamplingParams], indices: list[int]) -> torch.Tensor:
    """Draw the `index`-th token of its run per row of `[rows, vocab_size]` float32 logits."""
    numbers = [uniform(p.seed, index) for p, index in zip(params, indices, strict=True)]
    draws = _column(numbers, logits)
    is_cut = [p.is_cut for p in params]
    # rows that need no cut are cut nowhere: a cut puts tokens in order, which changes which one a
    # draw means, so a row goes through it exactly if its own parameters say so, whoever its
    # neighbours are
    token_ids = torch.empty(len(params), dtype=torch.int64, device=logits.device)
    for cut, draw in ((False, _draw_all), (True, _draw_cut)):
        rows = [row for row, flag in enumerate(is_cut) if flag is cut]
        if rows:
            some = [params[row] for row in rows]
            drawn = draw(_some(logits, rows), _some(draws, rows), some)
            token_ids = _with_some(token_ids, rows, drawn)
    return token_ids


def _draw_all(
    logits: torch.Tensor, draws: torch.Tensor, params: list[SamplingParams]
) -> torch.Tensor:
    """Draw from the whole vocabulary: a block of tokens, and then one of those."""
    probs = _probabilities(logits, params)
    if missing := -probs.shape[-1] % _BLOCK:
        probs = pad(probs, (0, missing))
    blocks = probs.view(len(probs), -1, _BLOCK)
    sums = blocks.sum(-1).double().cumsum(-1)
    wanted = draws * sums[:, -1:]
    block = _find(sums, wanted)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0]
    place = _find(inside.double().cumsum(-1), wanted - before)
    return (block * _BLOCK + place)[:, 0]


def _draw_cut(
    logits: torch.Tensor,
    draws: torch.Tensor,
    params: list[SamplingParams],
    count: int = NUM_LIKELIEST,
) -> torch.Tensor:
    """Draw after top-k, top-p and min-p, each on what the one before it left.

    Putting a whole vocabulary in order takes longer than many a model's step. So a row's `count`
    likeliest tokens are, and more of them only if its cut might leave some of those.
    """
    token_ids, is_enough = _draw_likeliest(logits, draws, params, count)
    if all(0 < p.top_k <= count for p in params):
        return token_ids  # enough, which the host knows without asking the device
    rows = [row for row, enough in enumerate(is_enough.tolist()) if not enough]
    if not rows:
        return token_ids
    some = [params[row] for row in rows]
    drawn = _draw_cut(_some(logits, rows), _some(draws, rows), some, _MORE * count)
    return _with_some(token_ids, rows, drawn)


def _draw_likeliest(
    logits: torch.Tensor, draws: torch.Tensor, params: list[SamplingParams], count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw among so many, and tell of each row whether its cut leaves no others; both `[rows]`."""
    ordered, token_ids = _in_order(logits, count)
    vocab_size = logits.shape[-1]
    top_k = _column([min(p.top_k or vocab_size, vocab_size) for p in params], logits)
    ranks = torch.arange(ordered.shape[-1], device=logits.device)
    probs = _probabilities(ordered.masked_fill(ranks >= top_k, float("-inf")), params)
    is_enough = top_k[:, 0] <= len(ranks)
    rows = [row for row, p in enumerate(params) if p.top_k == 0]
    if rows:  # shares of all tokens
        of_all = _probabilities(_some(logits, rows), [params[row] for row in rows])
        probs[rows] = of_all.gather(1, token_ids[rows])
    before = probs.cumsum(-1) - probs
    keep = before < _column([p.top_p for p in params], logits)
    keep &= probs >= _column([p.min_p for p in params], logits) * probs[:, :1]
    keep &= ranks < top_k
    keep[:, 0] = True
    sums = (probs * keep).double().cumsum(-1)
    picked = token_ids.gather(1, _find(sums, draws * sums[:, -1:]))
    if rows:
        is_enough[rows] |= ~keep[rows, -1]
    return picked[:, 0], is_enough


def _in_order(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest logits of each row and whose they are; equal ones by their ids."""
    if count >= logits.shape[-1]:
        ordered, token_ids = logits.sort(dim=-1, descending=True, stable=True)
        return ordered, token_ids
    token_ids = logits.topk(count, sorted=False).indices.sort(dim=-1).values
    ordered, places = logits.gather(1, token_ids).sort(dim=-1, descending=True, stable=True)
    return ordered, token_ids.gather(1, places)


def _probabilities(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Softmax, row by row: its sums are the same whatever rows share the call."""
    if any(p.temperature != 1.0 for p in params):
        logits = logits / _column([p.temperature for p in params], logits).float()
    return logits.softmax(-1)


def _find(sums: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Where running sums pass what is wanted, `[rows, 1]`, and no later than they end to grow."""
    last = torch.searchsorted(sums, sums[:, -1:].contiguous())
    found = torch.searchsorted(sums, wanted, right=True).minimum(last)
    return found.clamp_(max=sums.shape[-1] - 1)  # of what is not finite, too


def _column(values: list[float] | list[int], like: torch.Tensor) -> torch.Tensor:
    """One value per row, `[rows, 1]`, in double: the draws need all of its bits."""
    return to_device(torch.tensor(values, dtype=torch.float64), like.device)[:, None]
