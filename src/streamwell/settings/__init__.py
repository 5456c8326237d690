"""Everything that can be set, declared once: flags, environment variables and their help.

Each field is a flag of `streamwell serve` and an environment variable `STREAMWELL_<FLAG>`. Names
are vLLM's where the meaning is the same. Read once, validated, frozen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from streamwell.core.errors import InvalidRequest
from streamwell.models import BUILT_IN, built_in_path
from streamwell.settings.contradictions import contradictions
from streamwell.settings.converters import FILE, MOST, whole

__all__ = ["COMPAT", "Settings", "default_data_dir", "refuse_blank_keys"]


#: The project whose clients and environment `--compat` serves.
COMPAT = "transformers-openai-api"

_NotNegative = Number(gte=0, lte=MOST)
_AboveZero = Number(gt=0, lte=MOST)


def default_data_dir() -> Path:
    """Where runs are kept: the platform's place for an application's data."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "streamwell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a server."""

    models: Annotated[tuple[str, ...], Parameter(parse=False)] = ("brooklet",)

    revision: str | None = None
    "Branch, tag or commit of models from the hub; default: its main branch."

    loader: str | None = None
    "Serve the (model, tokenizer) of your own function MODULE:FUNCTION, which has all your rights."

    host: str = "127.0.0.1"
    "Address to listen on; beyond loopback an API key is required."

    port: Annotated[int, whole(0, 65535)] = 8000
    "Port to listen on."

    open: bool = False
    "Open the chat page in a browser of this machine."

    data_dir: Annotated[Path | None, FILE] = None
    "Folder of the run log; default: the user's data folder."

    engine: Literal["transformers", "vllm", "scripted"] = "transformers"
    "What generates: our engine, or vLLM; `scripted` needs no model and is for tests."

    device: str = "auto"
    "Device of the model, e.g. `cpu`, `cuda`; `auto` takes a GPU if there is one."

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    "Type of weights and cache; `auto` takes the model's own, or what the CPU computes fast."

    model_impl: Literal["auto", "native", "torch", "transformers"] = "auto"
    "Native helper, our PyTorch code, or Transformers' own; `auto`: the first that can."

    quantization: Literal["auto", "none", "int8", "int4"] = "auto"
    "Round weights when loading: less memory, more speed on a CPU; `auto`: as GGUF files have them."

    trust_remote_code: bool = False
    "Run Python code from the model's folder, with all your rights; only for code you have read."

    compile: bool = False
    "Compile the layers of the PyTorch path with `torch.compile`: slow to start; meant for GPUs."

    cuda_graphs: bool = True
    "On a GPU, launch steps that only decode all at once, where one of our decoders runs."

    max_model_len: Annotated[int | None, whole(2)] = None
    "Longest prompt plus answer in tokens; default: the model's own, at most 8192."

    max_num_seqs: Annotated[int, whole(1), Parameter(alias="--max-batch-size")] = 64
    "Sequences that are generated at the same time."

    batch_wait_timeout_s: Annotated[float, Parameter(validator=Number(gte=0, lte=600))] = 0.0
    "Seconds that choices may wait to begin together, unless they fill --max-num-seqs before."

    max_num_batched_tokens: Annotated[int | None, whole(1)] = None
    "Tokens of one engine step: a bound on its time; default: 256 on a CPU, 2048 or 8192 on a GPU."

    step_stretch: Annotated[float, Parameter(validator=Number(gte=0, lte=1000))] = 2.3
    "How many times as long a step may take when prompts are computed beside streams; 0: no limit."

    short_step_s: Annotated[float, Parameter(validator=Number(gte=0, lte=60))] = 0.3
    "Seconds of a step if no prompt is over 4 times --max-num-batched-tokens; twice for several."

    max_queue: Annotated[int, whole(0)] = 256
    "Choices that may wait beyond --max-num-seqs before requests are refused with 503."

    kv_cache_mib: Annotated[int | None, whole(1)] = None
    "Memory of the KV cache in MiB; default: at most 1024, on a GPU 70 % of the free, or a context."

    block_size: Annotated[int, whole(1, 1024)] = 16
    "Tokens per block of the KV cache."

    enable_prefix_caching: bool = True
    "Keep the KV cache of prompts and answers, and use it again where another prompt begins alike."

    speculative_ngram: Annotated[int, whole(0, 64)] = 0
    "Tokens to guess per step from what a sequence said before; 0 is off; changes no answer."

    speculative_model: str | None = None
    "A smaller model of the same vocabulary that guesses for the first model; changes no answer."

    speculative_tokens: Annotated[int, whole(1, 16)] = 4
    "Most tokens that --speculative-model guesses per step and sequence."

    lora: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "LoRA adapter of the first model: NAME=FOLDER, or brooklet-sailor; repeatable."

    enable_lora: bool = False
    "Serve LoRA adapters beside the model."

    max_loras: Annotated[int, whole(1, 1024)] = 8
    "Adapters that may be loaded at the same time; each takes memory of its own."

    max_lora_rank: Annotated[int, whole(1, 256)] = 64
    "Highest rank of an adapter."

    num_threads: Annotated[int | None, whole(1, 1024)] = None
    "Threads that compute; default: one per core, but a single one for a very small model."

    served_model_name: Annotated[
        tuple[str, ...], Parameter(negative="", consume_multiple=True)
    ] = ()
    "Names under which the one model is served; default: the model as given."

    api_key: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Keys that callers must send one of; repeatable."

    admin_key: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Keys that open all that an API key opens, and loading and unloading of models; repeatable."

    models_dir: Annotated[Path | None, FILE] = None
    "Folder of model folders that may be loaded while the server runs; default: none may."

    idle_unload_s: Annotated[float, Parameter(validator=_NotNegative)] = 0.0
    "Seconds without a request after which a model is unloaded until the next one; 0: never."

    check_memory: bool = True
    "Refuse to load a model for which there is not enough memory."

    cors_origin: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Origin whose pages may use the API, as `https://example.org`; repeatable; default: none."

    allowed_hosts: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True)] = ()
    "Names by which the server may be called beside those of this machine; without keys no others."

    prompt_preset: str = "chat"
    "Preset of /query-stream/, /generate-stream, /generate and / where a request names none."

    presets_dir: Annotated[Path | None, FILE] = None
    "Folder of presets (NAME.toml) beside those in the box; default: none."

    sse_ping_s: Annotated[float, Parameter(validator=_AboveZero)] = 15.0
    "Seconds of silence after which a stream gets a comment."

    send_timeout_s: Annotated[float, Parameter(validator=_AboveZero)] = 60.0
    "Seconds that a client may take nothing of what waits for it before its connection is closed."

    drain_s: Annotated[float, Parameter(validator=_NotNegative)] = 30.0
    "Seconds that live runs may go on after SIGTERM or Ctrl-C."

    engine_hang_s: Annotated[float, Parameter(validator=Number(gte=1, lte=MOST))] = 120.0
    "Seconds that a single step may take before the engine is killed and restarted."

    resume_grace_s: Annotated[float, Parameter(validator=_NotNegative)] = 30.0
    "Seconds that a run without readers waits for one to come back; 0 cancels it at once."

    durability: Literal["memory", "process", "disk"] = "process"
    "What the run log outlives: nothing, a kill of the server, or a power cut too."

    database_url: str | None = None
    "Keep the run log in PostgreSQL: `postgresql+psycopg://…`; default: SQLite in --data-dir."

    retention_mib: Annotated[int, whole(1)] = 4096
    "MiB that ended runs may take in the log; the oldest go first."

    retention_h: Annotated[float, Parameter(validator=_AboveZero)] = 24.0
    "Hours that ended runs stay in the log."

    retention_stored_h: Annotated[float, Parameter(validator=_AboveZero)] = 720.0
    "Hours that ended runs stay which the caller asked to store, as responses are by default."

    compat: Literal["transformers-openai-api"] | None = None
    "Answer as another project does: its defaults, its environment; see docs/compat.md."

    max_body_mib: Annotated[int, whole(1)] = 4
    "Largest request body in MiB."

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    "Least level that is logged."

    log_json: bool = False
    "Log JSON, one object per line."

    trace: Annotated[Path | None, FILE] = None
    "File for what each step of the first model computes; `streamwell trace` draws it."

    ray: bool = False
    "Serve on Ray Serve: gateways, and engines in replicas; wants `streamwell[ray]`."

    ray_gateways: Annotated[int, whole(1)] = 1
    "Replicas of the server itself, with --ray."

    ray_replicas: Annotated[int, whole(1)] = 1
    "Replicas of each model's engine, with --ray."

    scripted_step_s: Annotated[float, Parameter(validator=_NotNegative)] = 0.0
    "Seconds per token of the scripted engine."

    scripted_load_s: Annotated[float, Parameter(validator=_NotNegative)] = 0.0
    "Seconds that the scripted engine pretends to load."

    def __post_init__(self) -> None:
        for field, message in contradictions(self):
            raise InvalidRequest(message, field)

    @property
    def checks_hosts(self) -> bool:
        """Who calls must name the server: without keys its name is all that guards it."""
        return not self.has_keys or bool(self.allowed_hosts)

    @property
    def has_adapters(self) -> bool:
        return self.enable_lora or bool(self.lora)

    @property
    def adapters(self) -> dict[str, Path]:
        """Folders of the first model's adapters, by their names."""
        pairs = (adapter.partition("=") for adapter in self.lora)
        return {
            name: Path(path).expanduser() if path else built_in_path(name)
            for name, _, path in pairs
        }

    @property
    def has_keys(self) -> bool:
        return bool(self.api_key or self.admin_key)

    @property
    def default_models(self) -> tuple[str, ...]:
        """What is served where no model is named."""
        if self.loader is not None:
            return ()
        # vLLM knows no encoder-decoder like the second one
        return tuple(BUILT_IN)[:1] if self.engine == "vllm" else tuple(BUILT_IN)


def refuse_blank_keys(settings: Settings) -> None:
    """A variable that was to hold a key, and is empty, must not open the server to everybody.

    Raises:
        InvalidRequest: there is one, and no key beside it.
    """
    for name in ("api_key", "admin_key"):
        variable = f"STREAMWELL_{name.upper()}"
        if not settings.has_keys and not os.environ.get(variable, "a key").strip():
            raise InvalidRequest(f"{variable} is empty; unset it to serve without a key", name)
