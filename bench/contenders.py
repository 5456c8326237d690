"""The engines that `bench.engine` compares, each behind the same call.

All of them get the same prompts at the same time, choose greedily, and never stop early. They
differ in when tokens come out, and that is what a `Trace` keeps. Each lives in a process of its
own (`bench.child`): the thread pools of two engines in one process slow each other down.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.utils import logging as transformers_logging

from bench.models import adapter_folder
from bench.protocol import Contender, Trace
from bench.settings import PEER_NUM_BLOCKS, engine_options
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.loader import load
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Add, AddAdapter, EngineConfig, usual_tokens_per_step
from streamwell.engine.scheduler import Scheduler
from streamwell.settings import Settings

#: A continuous batching run that takes longer than this has hung.
TIMEOUT_S = 1800.0


class Streamwell:
    """Our engine without the process around it: no prefix cache, and no pace kept for streams."""

    def __init__(
        self,
        folder: Path,
        precision: str,
        num_threads: int,
        settings: Settings | None = None,
        *,
        kv_cache_bytes: int | None = None,
        adapter: Path | None = None,
    ) -> None:
        """With an adapter, all requests are for that."""
        defaults = settings or Settings(device="cpu")  # where its peers compute
        config = EngineConfig(
            model_path=str(folder),
            device=defaults.device,
            max_model_len=defaults.max_model_len,
            max_num_seqs=defaults.max_num_seqs,
            max_num_batched_tokens=defaults.max_num_batched_tokens,
            kv_cache_bytes=kv_cache_bytes,
            block_size=defaults.block_size,
            num_threads=num_threads,
            model_impl=defaults.model_impl,
            compile=defaults.compile,
            cuda_graphs=defaults.cuda_graphs,
            enable_lora=adapter is not None,
            **engine_options(precision),
        )
        model = load(config, lambda stage, progress: None)
        pool = BlockPool(model.info.num_blocks, model.info.block_size)
        scheduler = Scheduler(
            pool,
            max_num_seqs=defaults.max_num_seqs,
            max_num_batched_tokens=config.tokens_per_step(usual_tokens_per_step(model.info)),
            max_model_len=model.info.max_model_len,
            eos_token_ids=model.eos_token_ids,
            max_input_len=model.info.max_input_len or 0,
            enable_prefix_caching=False,
        )
        self._loop = EngineLoop(
            scheduler,
            model.runner,
            pool,
            start_ids=model.info.start_ids,
            adapters=model.adapters,
        )
        self._adapter = "" if adapter is None else adapter.name
        if adapter is not None:
            answer = self._loop.handle(AddAdapter(1, self._adapter, str(adapter)))
            if answer is None or answer.error is not None:
                raise RuntimeError(f"the adapter is not served: {answer}")

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        times: dict[str, list[float]] = {str(index): [] for index in range(len(prompts))}
        start = time.perf_counter()
        for request_id, prompt in zip(times, prompts, strict=True):
            request = GenerateRequest(
                request_id=request_id,
                prompt_ids=tuple(prompt),
                sampling=sampling,
                adapter=self._adapter,
            )
            self._loop.handle(Add(request))
        while self._loop.has_work:
            for output in self._loop.step():
                if output.error is not None:
                    raise RuntimeError(output.error)
                times[output.request_id] += [time.perf_counter() - start] * len(output.token_ids)
        wall_s = time.perf_counter() - start
        return Trace(tuple(tuple(stream) for stream in times.values()), wall_s)


class StepClock(StoppingCriteria):  # type: ignore[misc]  # Transformers is not typed
    """Never stops anything; notes when `generate` has chosen a token for every row."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(
        self,
        input_ids: torch.Tensor,
        scores: torch.Tensor,
        **kwargs: Any,  # noqa: ANN401 - Transformers' signature
    ) -> torch.Tensor:
        if input_ids.is_cuda:  # it was only queued; `generate` itself waits for it just after this
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _load_transformers(folder: Path, dtype: str, num_threads: int, device: str = "auto") -> Any:  # noqa: ANN401 - not typed
    torch.set_num_threads(num_threads)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
    ).eval()
    model.generation_config.eos_token_id = None
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device)


class Generate:
    """Transformers' `generate` over one static batch, with SDPA and its dynamic cache."""

    def __init__(self, folder: Path, dtype: str, num_threads: int, device: str = "auto") -> None:
        self._model = _load_transformers(folder, dtype, num_threads, device)

    @torch.inference_mode()
    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        ids = torch.tensor(prompts, device=self._model.device)
        clock = StepClock()
        start = time.perf_counter()
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            stopping_criteria=StoppingCriteriaList([clock]),
        )
        wall_s = time.perf_counter() - start
        stream = tuple(moment - start for moment in clock.times)
        return Trace((stream,) * len(prompts), wall_s)


class ContinuousBatching:
    """Transformers' continuous batching with SDPA; its start is not measured."""

    def __init__(self, folder: Path, dtype: str, num_threads: int) -> None:
        self._model = _load_transformers(folder, dtype, num_threads)

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        with self._manager(max_tokens) as manager:
            start = time.perf_counter()
            request_ids = manager.add_requests(
                [list(prompt) for prompt in prompts],
                max_new_tokens=max_tokens,
                record_timestamps=True,
            )
            streams: dict[str, tuple[float, ...]] = {}
            while len(streams) < len(request_ids):
                result = manager.get_result(timeout=1.0)
                if result is not None and result.is_finished():
                    if result.error is not None:
                        raise RuntimeError(result.error)
                    streams[result.request_id] = tuple(t - start for t in result.timestamps)
                if not manager.is_running() or time.perf_counter() - start > TIMEOUT_S:
                    raise RuntimeError("continuous batching stopped")
            wall_s = time.perf_counter() - start
        return Trace(tuple(streams[request_id] for request_id in request_ids), wall_s)

    @contextlib.contextmanager
    def _manager(self, max_tokens: int) -> Iterator[Any]:
        with self._model.continuous_batching_context_manager(
            generation_config=GenerationConfig(
                max_new_tokens=max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=ContinuousBatchingConfig(num_blocks=PEER_NUM_BLOCKS),
        ) as manager:
            # the cache is made by the thread that has just started: one request waits for it
            manager.add_requests([[3, 4, 5]], max_new_tokens=1)
            if manager.get_result(timeout=TIMEOUT_S) is None:
                raise RuntimeError("continuous batching did not start")
            yield manager


def plain_path(folder: Path, precision: str, num_threads: int) -> Streamwell:
    """Our engine on Transformers' modelling code."""
    return Streamwell(folder, precision, num_threads, Settings(model_impl="transformers"))


def adapted(folder: Path, precision: str, num_threads: int) -> Streamwell:
    """Our engine with an adapter."""
    return Streamwell(folder, precision, num_threads, adapter=adapter_folder(folder))


def adapted_in_torch(folder: Path, precision: str, num_threads: int) -> Streamwell:
    """The same in PyTorch."""
    settings = Settings(device="cpu", model_impl="torch")
    return Streamwell(folder, precision, num_threads, settings, adapter=adapter_folder(folder))


#: By the name that the tables give them; the first is the one that the others are held against.
CONTENDERS: dict[str, Callable[[Path, str, int], Contender]] = {
    "streamwell": Streamwell,
    "generate": Generate,
    "continuous batching": ContinuousBatching,
}
#: Only `bench.families` compares with the first, and `bench.adapters` with the others.
PLAIN_PATH, ADAPTED, ADAPTED_TORCH = "plain path", "adapted", "adapted, torch"
OTHERS: dict[str, Callable[[Path, str, int], Contender]] = {
    PLAIN_PATH: plain_path,
    ADAPTED: adapted,
    ADAPTED_TORCH: adapted_in_torch,
}
