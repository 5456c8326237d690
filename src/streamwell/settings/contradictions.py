"""Settings that do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from streamwell.core.loopback import is_loopback
from streamwell.models import BUILT_IN_ADAPTERS

if TYPE_CHECKING:
    from streamwell.settings import Settings

_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ADAPTER = re.compile(r"[^=]+=.+")
_ORIGIN = re.compile(rf"https?://(?:{_HOST_NAME.pattern})(?::\d{{1,5}})?")
_FUNCTION = re.compile(r"\w+(\.\w+)*:\w+")

#: What only our own engine knows; vLLM decides these itself, or has other flags for it.
_NOT_FOR_VLLM = frozenset(
    {
        "device",
        "cuda_graphs",
        "quantization",
        "block_size",
        "step_stretch",
        "short_step_s",
        "speculative_ngram",
        "speculative_model",
        "speculative_tokens",
        "lora",
        "enable_lora",
        "max_loras",
        "max_lora_rank",
        "trace",
    }
)


def contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Fields that do not go together, each with what is wrong about it."""
    yield from _of_access(settings)
    yield from _of_store(settings)
    yield from _of_models(settings)
    yield from _of_engine(settings)
    if settings.engine == "vllm":
        yield from _of_vllm(settings)
    if settings.ray:
        yield from _of_ray(settings)


def _of_access(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, keys in (("api_key", settings.api_key), ("admin_key", settings.admin_key)):
        flag = f"--{name.replace('_', '-')}"
        if not all(map(str.strip, keys)):
            yield name, f"{flag} is empty"
        if not all(map(str.isascii, keys)):
            yield name, f"{flag} has characters beyond ASCII, which clients cannot send in a header"
    if not is_loopback(settings.host) and not settings.has_keys:
        open_host = f"--host {settings.host} is open to other machines"
        yield "api_key", f"{open_host}; give at least one --api-key"
    if not all(map(_HOST_NAME.fullmatch, settings.allowed_hosts)):
        names = "names or addresses as in a URL, without a scheme or a port"
        yield "allowed_hosts", f"--allowed-hosts are {names}"
    if not all(map(_ORIGIN.fullmatch, settings.cors_origin)):
        yield "cors_origin", "--cors-origin is SCHEME://HOST or SCHEME://HOST:PORT, and no more"


def _of_store(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.database_url is not None and not settings.database_url.strip():
        yield "database_url", "--database-url is empty; without it the run log is a file"
    elif settings.database_url is not None and settings.durability == "memory":
        yield "database_url", "--database-url does not go with --durability memory"


def _of_models(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.served_model_name and len(settings.models) > 1:
        message = "--served-model-name is for a single model; name several as NAME=MODEL"
        yield "served_model_name", message
    if settings.loader is not None and not _FUNCTION.fullmatch(settings.loader):
        yield "loader", "--loader is MODULE:FUNCTION"
    if not all(each in BUILT_IN_ADAPTERS or _ADAPTER.fullmatch(each) for each in settings.lora):
        in_box = ", ".join(BUILT_IN_ADAPTERS)
        yield "lora", f"--lora is NAME=FOLDER, or one of those in the box: {in_box}"
    elif len({*settings.models, *settings.adapters}) < len(settings.models) + len(settings.lora):
        yield "lora", "--lora has a name that is given twice"


def _of_engine(settings: Settings) -> Iterator[tuple[str, str]]:
    if (settings.max_num_batched_tokens or settings.max_num_seqs) < settings.max_num_seqs:
        yield "max_num_batched_tokens", "--max-num-batched-tokens is less than --max-num-seqs"
    if settings.trace is not None and settings.engine == "scripted":
        yield "trace", "--trace is of a model's engine, which --engine scripted is not"
    if settings.speculative_model is not None and settings.speculative_ngram:
        message = "--speculative-model and --speculative-ngram both guess; give one of them"
        yield "speculative_model", message
    if settings.compile and settings.model_impl in ("native", "transformers"):
        flags = f"--model-impl torch, not --model-impl {settings.model_impl}"
        yield "compile", f"--compile is for {flags}"
    for flag, is_given in {
        "--compile": settings.compile,
        "--model-impl transformers": settings.model_impl == "transformers",
    }.items():
        if settings.has_adapters and is_given:
            yield "enable_lora", f"--enable-lora does not work with {flag}"


def _of_vllm(settings: Settings) -> Iterator[tuple[str, str]]:
    for field in fields(settings):
        value = getattr(settings, field.name)
        is_off = field.name == "quantization" and value == "none"  # which is what vLLM does
        if field.name in _NOT_FOR_VLLM and value != field.default and not is_off:
            flag = ("no-" if field.default is True else "") + field.name.replace("_", "-")
            yield field.name, f"--{flag} does not work with --engine vllm"
    if settings.model_impl in ("native", "torch"):
        message = f"--model-impl {settings.model_impl} does not work with --engine vllm"
        yield "model_impl", message


def _of_ray(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.durability == "memory" and settings.ray_gateways > 1:
        message = "--durability memory is for a single gateway: others could not take runs over"
        yield "durability", message
    if settings.models_dir is not None:
        yield "models_dir", "--models-dir does not work with --ray"
    if settings.idle_unload_s:
        yield "idle_unload_s", "--idle-unload-s does not work with --ray"
    for field in ("loader", "trace"):
        if getattr(settings, field) is not None:
            yield field, f"--{field} does not work with --ray"
