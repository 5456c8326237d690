"""The one file that imports vLLM: its `AsyncLLM`, loaded, asked and counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import vllm
from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, SchedulerStats

from streamwell.backends.vllm.arguments import engine_arguments
from streamwell.backends.vllm.translate import (
    MAX_TEMPERATURE,
    check,
    prompt_ids,
    sampling_arguments,
    sequence_output,
)
from streamwell.core.engine_state import EngineInfo, EngineStats
from streamwell.core.errors import EngineDied, EngineError, LoadError, SequenceFailed
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.folder import eos_token_ids
from streamwell.engine.messages import EngineConfig
from streamwell.engine.sequence import SequenceOutput
from streamwell.models.small_files import read_object

_MAX_REASON_CHARS = 500


class Meter(StatLoggerBase):  # type: ignore[misc] # vLLM is not there when types are checked
    """Keeps what vLLM tells of each step."""

    def __init__(self, config: VllmConfig, engine_index: int = 0) -> None:
        self._cache = config.cache_config
        self._last = SchedulerStats()
        self._num_steps = self._num_preemptions = self._num_queried = self._num_hits = 0

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: object = None,
        engine_idx: int = 0,
    ) -> None:
        if iteration_stats is not None:
            self._num_preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is not None:
            self._last = scheduler_stats
            self._num_steps += 1
            self._num_queried += scheduler_stats.prefix_cache_stats.queries
            self._num_hits += scheduler_stats.prefix_cache_stats.hits

    def log_engine_initialized(self) -> None:
        """Our own log says it."""

    def stats(self) -> EngineStats:
        last, num_blocks = self._last, self._cache.num_gpu_blocks or 0
        return EngineStats(
            num_running=last.num_running_reqs,
            num_waiting=last.num_waiting_reqs + last.num_skipped_waiting_reqs,
            # one block is vLLM's own
            num_used_blocks=round(last.kv_cache_usage * (num_blocks - 1)),
            num_blocks=num_blocks,
            num_preemptions=self._num_preemptions,
            num_steps=self._num_steps,
            num_prefix_queried_tokens=self._num_queried,
            num_prefix_hit_tokens=self._num_hits,
        )


class Vllm:
    """A loaded engine; see `host.Source`."""

    def __init__(self, engine: AsyncLLM, meter: Meter, model_path: str) -> None:
        config = engine.vllm_config
        vocab_size = config.model_config.get_vocab_size()
        path = Path(model_path)
        self._engine = engine
        self._eos = eos_token_ids(path, read_object(path / "config.json"), vocab_size)
        self.stats = meter.stats
        self.info = EngineInfo(
            max_model_len=config.model_config.max_model_len,
            vocab_size=vocab_size,
            num_blocks=config.cache_config.num_gpu_blocks or 0,
            block_size=config.cache_config.block_size,
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            device=current_platform.device_type,
            implementation=f"vllm/{vllm.__version__}",
            quantization=config.model_config.quantization or "none",
            max_temperature=MAX_TEMPERATURE,
        )

    @property
    def is_dead(self) -> bool:
        return bool(self._engine.errored)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[SequenceOutput, None]:
        try:
            check(request, self.info, self._eos)
            async with aclosing(self._ask(request)) as outputs:
                is_first = True
                async for output in outputs:
                    brought = sequence_output(request, output, is_first=is_first)
                    is_first &= brought is None
                    if brought is not None:
                        yield brought
        except EngineDeadError as error:
            raise EngineDied from error
        except (ValueError, VLLMClientError) as error:
            raise SequenceFailed(str(error)) from error
        except Exception as error:
            if self.is_dead:
                raise EngineDied from error
            raise SequenceFailed(type(error).__name__) from error

    async def try_out(self) -> None:
        """Generate one token: a model may be loaded that vLLM has no kernels for.

        Raises:
            LoadError: it cannot be run.
        """
        sampling = SamplingParams(max_tokens=1, temperature=0.0)
        request = GenerateRequest(request_id="first", prompt_ids=(0,), sampling=sampling)
        try:
            async with aclosing(self.generate(request)) as outputs:
                async for _ in outputs:
                    pass
        except EngineError as error:
            raise LoadError(f"vLLM cannot run this model ({error}); its log says why") from error

    def _ask(self, request: GenerateRequest) -> AsyncGenerator[Any, None]:
        params = vllm.SamplingParams(
            **sampling_arguments(request, self._eos), output_kind=RequestOutputKind.DELTA
        )
        salted = tokens_input(prompt_ids(request), cache_salt=request.cache_salt or None)
        outputs: AsyncGenerator[Any, None] = self._engine.generate(
            salted, params, request.request_id, priority=request.priority
        )
        return outputs


def load(config: EngineConfig) -> Vllm:
    """Start vLLM's own processes and wait until they take requests; needs a running event loop.

    Blocks.

    Raises:
        LoadError: with what vLLM says of it.
    """
    meters: list[Meter] = []

    def make_meter(vllm_config: VllmConfig, engine_index: int = 0) -> Meter:
        meters.append(Meter(vllm_config, engine_index))
        return meters[-1]

    arguments = engine_arguments(config, is_cpu=current_platform.is_cpu())
    try:
        vllm_config = AsyncEngineArgs(**arguments).create_engine_config()
        if vllm_config.model_config.is_encoder_decoder:
            raise LoadError("encoder-decoders are served by --engine transformers")
        engine = AsyncLLM.from_vllm_config(
            vllm_config, stat_loggers=[make_meter], disable_log_stats=True
        )
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARS]
        raise LoadError(f"vLLM cannot load {config.model_path}: {reason}") from error
    return Vllm(engine, meters[0], config.model_path)
