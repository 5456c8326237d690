"""An engine in this process: loader, runner, scheduler and loop, stepped by the test."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from tiny_models import VOCAB_SIZE, auto_class
from transformers import AutoConfig

from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.checkpoint import Report
from streamwell.engine.drafter import NgramDrafter
from streamwell.engine.loader import LoadedModel, load
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Add, EngineConfig
from streamwell.engine.native import BLOCK_SIZE as NATIVE_BLOCK_SIZE
from streamwell.engine.scheduler import Scheduler

#: `make test-gpu` sets it.
DEVICE = os.environ.get("STREAMWELL_TEST_DEVICE", "cpu")
MAX_MODEL_LEN, MAX_NUM_SEQS = 64, 8
#: Small, so that a sequence has many; the native helper has its own size.
BLOCK_SIZE = 4
ALL_TOKENS = MAX_NUM_SEQS * MAX_MODEL_LEN


def load_model(
    folder: Path,
    model_impl: str = "auto",
    quantization: str = "none",
    *,
    dtype: str = "float32",
    block_size: int | None = None,
    compile_layers: bool = False,
    draft: Path | None = None,
    enable_lora: bool = False,
    max_loras: int = 8,
    kv_cache_bytes: int | None = None,
    max_model_len: int = MAX_MODEL_LEN,
    report: Report = lambda _stage, _progress: None,
) -> LoadedModel:
    """Load on one thread: these models are too small for two."""
    fitting = NATIVE_BLOCK_SIZE if model_impl == "native" else BLOCK_SIZE
    config = EngineConfig(
        model_path=str(folder),
        device=DEVICE,
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=1,  # the scheduler's affair, and the tests make their own
        kv_cache_bytes=kv_cache_bytes,
        block_size=block_size or fitting,
        num_threads=1,
        model_impl=model_impl,
        quantization=quantization,
        compile=compile_layers,
        speculative_model=str(draft) if draft else None,
        enable_lora=enable_lora,
        max_loras=max_loras,
    )
    return load(config, report)


@dataclass(slots=True)
class Outcome:
    """All that an engine said of one request."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None


class EngineRig:
    """A fresh scheduler over a loaded model, whose cache keeps what earlier ones left in it."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        pool_tokens: int = ALL_TOKENS,
        budget: int = 256,
        enable_prefix_caching: bool = True,
        speculative_ngram: int = 0,
        speculative_tokens: int = 4,
    ) -> None:
        """If the model has a draft model, that guesses `speculative_tokens`."""
        block_size = model.info.block_size
        self.pool = BlockPool(pool_tokens // block_size, block_size)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=budget,
            max_model_len=MAX_MODEL_LEN,
            eos_token_ids=model.eos_token_ids,
            max_input_len=model.info.max_input_len or 0,
            enable_prefix_caching=enable_prefix_caching and not model.keeps_states,
            num_speculative_tokens=speculative_tokens if model.drafter else speculative_ngram,
        )
        self.loop = EngineLoop(
            self.scheduler,
            model.runner,
            self.pool,
            start_ids=model.info.start_ids,
            drafter=model.drafter or (NgramDrafter() if speculative_ngram else None),
            adapters=model.adapters,
        )

    def serve(
        self, requests: list[GenerateRequest], *, arrivals: Random | None = None
    ) -> dict[str, Outcome]:
        """Run requests to their ends; they come at random steps, or all at once."""
        outcomes = {request.request_id: Outcome() for request in requests}
        todo = list(requests)
        while todo or self.loop.has_work:
            while todo and (arrivals is None or arrivals.random() < 0.5):
                self.loop.handle(Add(todo.pop(0)))
            for output in self.loop.step():
                outcome = outcomes[output.request_id]
                assert outcome.finish_reason is None  # nobody speaks after the last word
                outcome.token_ids += output.token_ids
                outcome.finish_reason, outcome.error = output.finish_reason, output.error
            self.scheduler.check_integrity()
        assert 0 == self.pool.num_used
        return outcomes


def make_requests(vocab_size: int, *, count: int = 16, seed: int = 0) -> list[GenerateRequest]:
    """Greedy requests with prompts of mixed lengths, 1 to 40 tokens.

    Three of four run to their full length, so that the load does not depend on the model; the
    others may end by themselves.
    """
    rng = Random(seed)
    requests = []
    for i in range(count):
        # the shortest and the longest, and those around the sliding windows of the tiny models
        length = {0: 1, 1: 40, 2: 8, 4: 9}.get(i, rng.randint(1, 40))
        prompt = tuple(rng.randrange(3, vocab_size) for _ in range(length))
        max_tokens = rng.randint(1, 20)
        min_tokens = 0 if i % 4 == 3 else max_tokens
        sampling = SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens, temperature=0.0)
        requests.append(GenerateRequest(request_id=f"r{i}", prompt_ids=prompt, sampling=sampling))
    return requests


def shared_beginnings() -> list[GenerateRequest]:
    """Prompts with beginnings in common, cut within blocks and at their ends."""
    rng = Random(5)
    text = [rng.randrange(3, VOCAB_SIZE) for _ in range(40)]
    requests = []
    for i, request in enumerate(make_requests(VOCAB_SIZE)):
        kept = text[: 3 * i % 37]
        requests.append(replace(request, prompt_ids=(*kept, *request.prompt_ids)[:44]))
    return requests


@torch.inference_mode()
def reference_logits(folder: Path, prompt_ids: tuple[int, ...]) -> torch.Tensor:
    """Transformers' logits `[len(prompt_ids), vocab_size]` of a prompt."""
    model = load_reference(folder)
    logits: torch.Tensor = model(torch.tensor([prompt_ids])).logits[0]
    return logits


def reference_tokens(folder: Path, requests: list[GenerateRequest]) -> dict[str, list[int]]:
    """What `generate(do_sample=False)` of Transformers gives each request, one by one."""
    return tokens_of(load_reference(folder), requests)


def load_reference(folder: Path, dtype: torch.dtype = torch.float32) -> Any:  # noqa: ANN401
    """The model as Transformers loads it."""
    kind = auto_class(AutoConfig.from_pretrained(folder))
    return kind.from_pretrained(folder, dtype=dtype).eval()


def tokens_of(model: Any, requests: list[GenerateRequest]) -> dict[str, list[int]]:  # noqa: ANN401
    """The same of a model that is loaded already."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tokens = {}
    for request in requests:
        ids = torch.tensor([request.prompt_ids])
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=request.sampling.max_tokens,
            min_new_tokens=request.sampling.min_tokens,
        )
        tokens[request.request_id] = out[0, ids.shape[1] :].tolist()
    torch.set_num_threads(num_threads)
    return tokens
