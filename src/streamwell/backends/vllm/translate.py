"""Requests and outputs under vLLM's names. Pure: needs no vLLM, and reads its outputs by attribute.

A request that goes on after a fault is fed as a longer prompt, for vLLM has no other way in. What
it would have counted as completion is taken into account here: bounds shrink, penalties of the
tokens so far become biases, and the seed changes, or vLLM would draw its first numbers again.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from streamwell.core.engine_state import EngineInfo
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.sequence import SequenceOutput

#: vLLM refuses to sample above.
MAX_TEMPERATURE = 2.0
#: What vLLM's second model runner takes of each; with more it would end, with all its requests.
MAX_BIASES, MAX_STOPS = 1024, 128

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class Completion(Protocol):
    """`vllm.outputs.CompletionOutput`; with DELTA outputs, the ids since the last one."""

    token_ids: Sequence[int]
    finish_reason: str | None


class Output(Protocol):
    """`vllm.outputs.RequestOutput`."""

    outputs: Sequence[Completion]
    num_cached_tokens: int | None


def check(request: GenerateRequest, info: EngineInfo, eos_token_ids: Collection[int]) -> None:
    """Refuse what vLLM cannot run, or could not run without harm to other requests.

    Raises:
        ValueError: says what is wrong.
    """
    sampling, num_tokens = request.sampling, len(request.prompt_ids) + len(request.completion_ids)
    if request.adapter:
        raise ValueError(f"there is no adapter {request.adapter!r}")
    if not request.prompt_ids or num_tokens >= info.max_model_len:
        raise ValueError(f"{num_tokens} tokens, in a context of {info.max_model_len}")
    biased = (token_id for token_id, _ in sampling.logit_bias)
    for ids in (request.prompt_ids, request.completion_ids, biased, sampling.stop_token_ids):
        for token_id in ids:
            if not 0 <= token_id < info.vocab_size:
                raise ValueError(f"token id {token_id} is not in the vocabulary")
    if len(_stops(sampling, eos_token_ids)) > MAX_STOPS:
        raise ValueError(f"more than {MAX_STOPS} ids in stop_token_ids, with the model's own")


def prompt_ids(request: GenerateRequest) -> list[int]:
    """All ids that are there already."""
    return [*request.prompt_ids, *request.completion_ids]


def sampling_arguments(request: GenerateRequest, eos_token_ids: Collection[int]) -> dict[str, Any]:
    """The arguments of `vllm.SamplingParams`, but for the kind of output."""
    sampling, num_done = request.sampling, len(request.completion_ids)
    max_tokens = sampling.max_tokens - num_done
    takes_first = sampling.top_p == 0.0  # which vLLM calls by another name
    return {
        "max_tokens": max_tokens,
        "min_tokens": min(max(0, sampling.min_tokens - num_done), max_tokens),
        "seed": _seed(sampling.seed, num_done),
        "temperature": sampling.temperature,
        "top_p": 1.0 if takes_first else sampling.top_p,
        "top_k": 1 if takes_first else max(0, sampling.top_k),
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": _biases(request) or None,
        # the ids that end an answer are given by us, so that all engines have the same
        "ignore_eos": True,
        "stop_token_ids": sorted(_stops(sampling, eos_token_ids)),
        "detokenize": False,
    }


def _stops(sampling: SamplingParams, eos_token_ids: Collection[int]) -> set[int]:
    return {*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)}


def _seed(seed: int, num_done: int) -> int:
    """Not negative, for vLLM takes -1 for none; another one for each place to go on from."""
    if num_done:
        digest = hashlib.sha256(f"{seed}:{num_done}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big")
    return seed % 2**63


def _biases(request: GenerateRequest) -> dict[int, float]:
    """Those that were asked for, and the additive penalties of the tokens so far."""
    sampling = request.sampling
    biases = dict(sampling.logit_bias)
    if sampling.presence_penalty or sampling.frequency_penalty:
        for token_id, count in Counter(request.completion_ids).items():
            penalty = sampling.presence_penalty + sampling.frequency_penalty * count
            biases[token_id] = biases.get(token_id, 0.0) - penalty
    strongest = heapq.nlargest(MAX_BIASES, biases.items(), key=lambda item: abs(item[1]))
    return dict(strongest)


def sequence_output(
    request: GenerateRequest, output: Output, *, is_first: bool
) -> SequenceOutput | None:
    """What an output brought; `None` if that is nothing."""
    (completion,) = output.outputs
    token_ids, word = tuple(completion.token_ids), completion.finish_reason
    if word is not None and word not in _REASONS:
        error = f"vLLM ended it: {word}"
        return SequenceOutput(request.request_id, (), FinishReason.ERROR, error)
    if not token_ids and word is None:
        return None
    # what a run has said already is part of the prompt for vLLM, and not for who reads the usage
    num_cached = min(output.num_cached_tokens or 0, len(request.prompt_ids)) if is_first else 0
    reason = None if word is None else _REASONS[word]
    return SequenceOutput(request.request_id, token_ids, reason, num_cached_tokens=num_cached)
