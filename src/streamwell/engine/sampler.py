"""Chooses the next token of every sequence of a step; each has its own parameters.

Random numbers are counter-based: the draw for a token depends on the run's seed and the token's
index and on nothing else, so there is no state to save, and neither neighbours, preemption nor a
restart change it.

The order of the filters is that of Transformers: penalties, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import torch

from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import Sampled, Sequence

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15

#: Below this a temperature is as good as greedy, and dividing by it would overflow.
MIN_TEMPERATURE = 1e-5


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


class Sampler:
    """Turns logits into token ids."""

    def __init__(self, eos_token_ids: frozenset[int]) -> None:
        self._eos_token_ids = eos_token_ids

    def __call__(
        self, logits: torch.Tensor, seqs: list[Sequence], ahead: list[int] | None = None
    ) -> list[Sampled]:
        """Choose one token per row; a row that cannot be sampled fails alone.

        Args:
            logits: `[len(seqs), vocab_size]`, float; float32 logits may be changed in place.
            seqs: the sequence of each row.
            ahead: how many guessed tokens come between each sequence and the token of its row;
                none if not given. Sequences with penalties must have none.
        """
        logits = logits.float()
        indices = [
            seq.num_completion_tokens + more
            for seq, more in zip(seqs, ahead or [0] * len(seqs), strict=True)
        ]
        for row, (seq, index) in enumerate(zip(seqs, indices, strict=True)):
            self._edit(logits[row], seq, index)
        is_finite = torch.isfinite(logits.amax(-1)).tolist()
        token_ids = logits.argmax(-1).tolist()
        rows = [
            row
            for row, seq in enumerate(seqs)
            if is_finite[row] and seq.sampling.temperature >= MIN_TEMPERATURE
        ]
        if rows:
            params = [seqs[row].sampling for row in rows]
            drawn = _draw(logits[rows], params, [indices[row] for row in rows])
            for row, token_id in zip(rows, drawn, strict=True):
                token_ids[row] = token_id
        return [
            Sampled(token_id) if ok else Sampled(-1, "the logits are not finite")
            for token_id, ok in zip(token_ids, is_finite, strict=True)
        ]

    def _edit(self, logits: torch.Tensor, seq: Sequence, index: int) -> None:
        """Apply bias, penalties and `min_tokens` to the row of the `index`-th token, in place."""
        params = seq.sampling
        if params.logit_bias:
            ids, biases = zip(*params.logit_bias, strict=True)
            logits[list(ids)] += torch.tensor(biases, device=logits.device)
        if params.repetition_penalty != 1.0:
            ids = torch.unique(torch.tensor(seq.token_ids, device=logits.device))
            scores, penalty = logits[ids], params.repetition_penalty
            logits[ids] = torch.where(scores > 0, scores / penalty, scores * penalty)
        if (params.presence_penalty or params.frequency_penalty) and seq.num_completion_tokens:
            completion = torch.tensor(seq.token_ids[seq.num_prompt_tokens :], device=logits.device)
            ids, counts = torch.unique(completion, return_counts=True)
            logits[ids] -= params.frequency_penalty * counts + params.presence_penalty
        if index < params.min_tokens:
            logits[sorted({*self._eos_token_ids, *params.stop_token_ids})] = float("-inf")


def _draw(logits: torch.Tensor, params: list[SamplingParams], indices: list[int]) -> list[int]:
    """Draw the `index`-th token of its run per row of `[rows, vocab_size]` float32 logits."""
    temperatures = _column([p.temperature for p in params], logits)
    scaled = logits / temperatures.float()
    numbers = [uniform(p.seed, index) for p, index in zip(params, indices, strict=True)]
    draws = _column(numbers, logits)
    is_cut = [p.top_k > 0 or p.top_p < 1.0 or p.min_p > 0.0 for p in params]
    # rows that need no cut are cut nowhere: a sort changes which token a draw means, so a row
    # goes through it exactly if its own parameters say so, whoever its neighbours are
    token_ids = [0] * len(params)
    for cut in (False, True):
        rows = [row for row, flag in enumerate(is_cut) if flag is cut]
        if rows:
            some = (scaled[rows], draws[rows])
            drawn = _draw_cut(*some, [params[r] for r in rows]) if cut else _draw_all(*some)
            for row, token_id in zip(rows, drawn, strict=True):
                token_ids[row] = token_id
    return token_ids


def _draw_all(scaled: torch.Tensor, draws: torch.Tensor) -> list[int]:
    return _inverse_cdf(scaled.softmax(-1), draws)


def _draw_cut(scaled: torch.Tensor, draws: torch.Tensor, params: list[SamplingParams]) -> list[int]:
    """Draw after top-k, top-p and min-p, each on what the one before it left."""
    vocab_size = scaled.shape[-1]
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(vocab_size, device=scaled.device)
    top_k = _column([p.top_k or vocab_size for p in params], scaled)
    probs = ordered.masked_fill(ranks >= top_k, float("-inf")).softmax(-1)
    before = probs.cumsum(-1) - probs
    keep = before < _column([p.top_p for p in params], scaled)
    keep &= probs >= _column([p.min_p for p in params], scaled) * probs[:, :1]
    keep[:, 0] = True
    picked = _inverse_cdf(probs * keep, draws)
    ranks_picked = torch.tensor(picked, device=order.device)[:, None]
    return [int(token_id) for token_id in order.gather(1, ranks_picked)[:, 0].tolist()]


def _inverse_cdf(weights: torch.Tensor, draws: torch.Tensor) -> list[int]:
    """The index at which the running sum of the weights passes `draw * total`, per row."""
    sums = weights.double().cumsum(-1)
    picked = torch.searchsorted(sums, draws.double() * sums[:, -1:], right=True)
    return [int(i) for i in picked[:, 0].clamp_(max=weights.shape[-1] - 1).tolist()]


def _column(values: list[float] | list[int], like: torch.Tensor) -> torch.Tensor:
    """One value per row, `[rows, 1]`, in double: the draws need all of its bits."""
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]
