"""Same text alone or in a crowd: `python -m bench.invariance`.

A case is a greedy request, served once by itself and once among others: with neighbours that come
and go, in chunks of random sizes, over a cache so small that sequences are preempted, and behind
prompts that begin alike, so that prefixes are found in the cache. It differs if any token does.
Paths that promise the same text must show no difference; for the others the rate is what counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import torch

from bench.models import model_folder
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.loader import LoadedModel, load
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Add, EngineConfig
from streamwell.engine.scheduler import Scheduler
from streamwell.models import brooklet_path

#: Name: what runs the model, its dtype, what its weights are rounded to.
PATHS = {
    "native": ("native", "float32", "none"),
    "native bfloat16": ("native", "bfloat16", "none"),
    "native int8": ("native", "float32", "int8"),
    "native int4": ("native", "float32", "int4"),
    "torch float32": ("torch", "float32", "none"),
    "torch bfloat16": ("torch", "bfloat16", "none"),
    "transformers float32": ("transformers", "float32", "none"),
}
MAX_MODEL_LEN, MAX_NUM_SEQS, CROWD = 256, 16, 16


def main() -> None:
    """Measure every path, and print a row for each."""
    arguments = _parse()
    is_brooklet = arguments.model == "brooklet"
    folder = brooklet_path() if is_brooklet else model_folder(arguments.model)
    print(f"{'path':24}{'cases':>8}{'differ':>8}{'preempted':>12}{'found in cache':>16}")
    for name in arguments.paths:
        model = _load(folder, arguments.device, *PATHS[name])
        rng = Random(arguments.seed)
        cases = differences = preemptions = hits = 0
        while cases < arguments.cases:
            requests = list(_requests(rng, model.info.vocab_size))
            crowd, scheduler = _serve(model, requests, rng, crowded=True)
            for request in requests:
                alone, _ = _serve(model, [request], rng, crowded=False)
                differences += crowd[request.request_id] != alone[request.request_id]
            cases += len(requests)
            preemptions += scheduler.num_preemptions
            hits += scheduler.num_hit_tokens
        print(f"{name:24}{cases:8}{differences:8}{preemptions:12}{hits:16}", flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.invariance", description=__doc__)
    parser.add_argument("--model", default="brooklet", help="`brooklet`, or one of bench.models")
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=list(PATHS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _load(folder: Path, device: str, model_impl: str, dtype: str, quantization: str) -> LoadedModel:
    config = EngineConfig(
        model_path=str(folder),
        device=device,
        dtype=dtype,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_MODEL_LEN,
        kv_cache_bytes=None,
        block_size=16,
        num_threads=torch.get_num_threads(),
        model_impl=model_impl,
        quantization=quantization,
    )
    return load(config, lambda _stage, _progress: None)


def _requests(rng: Random, vocab_size: int) -> Iterator[GenerateRequest]:
    """A crowd; half of it begins with the same tokens."""
    shared = [rng.randrange(3, vocab_size) for _ in range(rng.randint(16, 120))]
    for index in range(CROWD):
        prompt = [rng.randrange(3, vocab_size) for _ in range(rng.randint(1, 100))]
        prompt = shared + prompt if index % 2 else prompt
        sampling = SamplingParams(max_tokens=rng.randint(1, 24), temperature=0.0, ignore_eos=True)
        yield GenerateRequest(request_id=str(index), prompt_ids=tuple(prompt), sampling=sampling)


def _serve(
    model: LoadedModel, requests: list[GenerateRequest], rng: Random, *, crowded: bool
) -> tuple[Mapping[str, list[int]], Scheduler]:
    """Tokens by request id, in a fresh engine; a crowded one is small and shares its cache."""
    per_sequence = MAX_MODEL_LEN // model.info.block_size
    num_blocks = rng.randint(per_sequence, 2 * per_sequence) if crowded else model.info.num_blocks
    pool = BlockPool(num_blocks, model.info.block_size)
    scheduler = Scheduler(
        pool,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=rng.randint(MAX_NUM_SEQS, 150) if crowded else MAX_MODEL_LEN,
        max_model_len=MAX_MODEL_LEN,
        eos_token_ids=model.eos_token_ids,
        enable_prefix_caching=crowded,
    )
    loop = EngineLoop(scheduler, model.runner, pool)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    todo = list(requests)
    while todo or loop.has_work:
        while todo and (not crowded or rng.random() < 0.5):
            loop.handle(Add(todo.pop(0)))
        for output in loop.step():
            if output.error is not None:
                raise RuntimeError(output.error)
            tokens[output.request_id] += output.token_ids
    return tokens, scheduler


if __name__ == "__main__":
    main()
