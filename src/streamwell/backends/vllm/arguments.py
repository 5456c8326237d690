"""What vLLM is configured with: our settings under its names. Pure: needs no vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamwell.engine.messages import (
    BATCHED_TOKENS,
    BATCHED_TOKENS_GPU,
    DEFAULT_KV_CACHE_BYTES,
    DEFAULT_MAX_MODEL_LEN,
    EngineConfig,
)
from streamwell.models.outline import describe_folder

#: Nothing is reported to anybody, and the log has room for what the server says.
_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}


def environment(config: EngineConfig) -> dict[str, str]:
    """What must be in the environment before vLLM is imported; what is there already stays."""
    variables = dict(_QUIET)
    if config.num_threads is not None:
        variables["OMP_NUM_THREADS"] = str(config.num_threads)
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # or the number would not be looked at
    if not config.trust_remote_code:
        variables["HF_HUB_OFFLINE"] = "1"  # the folder is all there is: nothing is ever fetched
    return variables


def engine_arguments(config: EngineConfig, *, is_cpu: bool) -> dict[str, Any]:
    """The arguments of `vllm.AsyncEngineArgs`.

    Raises:
        LoadError: the folder has no config.
    """
    kv_cache_bytes = config.kv_cache_bytes
    if kv_cache_bytes is None and is_cpu:
        kv_cache_bytes = DEFAULT_KV_CACHE_BYTES  # vLLM would take nearly all memory there is
    max_model_len = config.max_model_len
    if max_model_len is None:
        trained = describe_folder(Path(config.model_path)).context
        max_model_len = min(trained or DEFAULT_MAX_MODEL_LEN, DEFAULT_MAX_MODEL_LEN)
    return {
        "model": config.model_path,
        "runner": "generate",
        "skip_tokenizer_init": True,
        "load_format": "safetensors",  # never a pickle
        "generation_config": "vllm",  # defaults come with each request
        "dtype": config.dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": _num_batched_tokens(config, max_model_len, is_cpu=is_cpu),
        "enable_chunked_prefill": not is_cpu,
        "kv_cache_memory_bytes": kv_cache_bytes,
        "enable_prefix_caching": config.enable_prefix_caching,
        "trust_remote_code": config.trust_remote_code,
        "model_impl": config.model_impl,
        # on CPUs compiling takes minutes and is asked for; on GPUs vLLM is slow without its graphs
        "enforce_eager": is_cpu and not config.compile,
        "scheduling_policy": "priority",
        "disable_log_stats": True,  # ours is the only one
    }


def _num_batched_tokens(config: EngineConfig, max_model_len: int, *, is_cpu: bool) -> int:
    """On a CPU enough for any prompt at once.

    Between chunks vLLM 0.32 turns the random numbers of a sampled request back, which PyTorch can
    do on GPUs only: on a CPU the engine dies of it.
    """
    usual = BATCHED_TOKENS if is_cpu else BATCHED_TOKENS_GPU
    return max(config.tokens_per_step(usual), max_model_len if is_cpu else 0)
