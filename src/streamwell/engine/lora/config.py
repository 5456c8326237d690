"""Reads an `adapter_config.json` of PEFT without guessing, and without evaluating it.

What would change the numbers and has no place here is refused by name, and so is every field that
we do not know. Patterns in it are regular expressions to PEFT: a hostile one could take for ever,
so none is evaluated; which layers an adapter changes is what its tensors say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError
from streamwell.models.small_files import read_object

#: No adapter may be of a higher rank than this, whatever `--max-lora-rank` says.
MAX_RANK = 256
#: No list or pattern has more; each is compared with each layer.
_MAX_ENTRIES = 4096
_MAX_ALPHA = 1e6

#: Fields that change nothing of what a saved adapter computes, or that the tensors say better.
_IGNORED = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "corda_config",
        "eva_config",
        "exclude_modules",
        "fan_in_fan_out",
        "inference_mode",
        "layers_pattern",
        "loftq_config",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
    }
)
_READ = frozenset(
    {
        "alpha_pattern",
        "bias",
        "init_lora_weights",
        "layers_to_transform",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
#: Ways to begin training that leave the model's own weights alone.
_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
_NAME = re.compile(r"\^?[A-Za-z0-9_.]{1,300}")


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """What an adapter says of itself."""

    #: The ranks that its layers may have.
    ranks: frozenset[int]
    alpha: float
    #: Names of layers, or ends of such, and the alpha that these have instead; the first counts.
    alphas: Mapping[str, float]
    is_rank_stabilized: bool
    #: Names of layers, or ends of such; `None`: it does not say, or in a pattern.
    targets: tuple[str, ...] | None
    #: Numbers of the layers that it changes; `None`: it does not say.
    layers: frozenset[int] | None

    def scale(self, module: str, rank: int) -> float:
        """The factor of what it adds to a layer (rank-stabilised: Kalajdzievski 2023)."""
        names = (name for name in self.alphas if _is_meant(module, name))
        alpha = self.alphas.get(next(names, ""), self.alpha)
        return alpha / (math.sqrt(rank) if self.is_rank_stabilized else rank)

    def has_target(self, module: str) -> bool:
        """Whether it says that it changes this layer."""
        return self.targets is None or any(_is_meant(module, name) for name in self.targets)


def read_config(file: Path, max_rank: int) -> LoraConfig:
    """The config of an adapter whose size has been checked.

    Raises:
        LoadError: names the field that cannot be served.
    """
    config = read_object(file)
    try:
        _check_fields(config)
        ranks = (config.get("r"), *_pattern(config, "rank_pattern").values())
        alphas = {
            _name("alpha_pattern", name): _alpha("alpha_pattern", alpha)
            for name, alpha in _pattern(config, "alpha_pattern").items()
        }
        return LoraConfig(
            ranks=frozenset(_rank(value, max_rank) for value in ranks),
            alpha=_alpha("lora_alpha", config.get("lora_alpha")),
            alphas=alphas,
            is_rank_stabilized=config.get("use_rslora") is True,
            targets=_targets(config.get("target_modules")),
            layers=_layers(config.get("layers_to_transform")),
        )
    except _FieldError as error:
        raise LoadError(f"{file}: {error}") from error


class _FieldError(Exception):
    """A field that cannot be served, and why."""


def _check_fields(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise _FieldError(f"peft_type is {config.get('peft_type')!r:.40}; only LORA is served")
    if config.get("task_type") not in (None, "CAUSAL_LM"):
        raise _FieldError(f"task_type is {config['task_type']!r:.40}; only CAUSAL_LM is served")
    if config.get("bias", "none") != "none":
        raise _FieldError(f"bias is {config['bias']!r:.40}; trained biases are not served")
    start = config.get("init_lora_weights")
    if not any(start is known or start == known for known in _STARTS):
        raise _FieldError(
            f"init_lora_weights is {start!r:.40}, which may mean other weights of the model; "
            "save the adapter converted to plain LoRA"
        )
    if not isinstance(config.get("use_rslora"), bool | None):
        raise _FieldError(f"use_rslora is {config['use_rslora']!r:.40}, neither true nor false")
    foreign = config.keys() - _READ - _IGNORED
    for name in sorted(name for name in foreign if config[name]):
        raise _FieldError(f"{name!r:.80} is {config[name]!r:.80}, which is not served")


def _pattern(config: Mapping[str, Any], field: str) -> dict[str, Any]:
    """An object that maps names to numbers; empty if there is none."""
    pattern = config.get(field) or {}
    if not isinstance(pattern, dict) or len(pattern) > _MAX_ENTRIES:
        raise _FieldError(f"{field} is {pattern!r:.40}, not names and numbers")
    return pattern


def _rank(value: Any, max_rank: int) -> int:  # noqa: ANN401 - as JSON has it
    if type(value) is not int or value < 1:
        raise _FieldError(f"a rank (r, rank_pattern) is {value!r:.40}, not a positive number")
    limit = min(max_rank, MAX_RANK)
    if value > limit:
        flag = f"; see --max-lora-rank (at most {MAX_RANK})"
        raise _FieldError(f"a rank (r, rank_pattern) is {value!r:.40}, over {limit}{flag}")
    return value


def _alpha(field: str, value: Any) -> float:  # noqa: ANN401 - as JSON has it
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _MAX_ALPHA:  # NaN is below nothing
        raise _FieldError(f"{field} is {value!r:.40}, not a number up to {_MAX_ALPHA:g}")
    return float(value)


def _name(field: str, name: str) -> str:
    """A name of layers, perhaps from its beginning on (`^`)."""
    if not _NAME.fullmatch(name):
        raise _FieldError(f"{field} has {name!r:.80}, which is no plain name of a layer")
    return name


def _targets(value: Any) -> tuple[str, ...] | None:  # noqa: ANN401 - as JSON has it
    if value is None or isinstance(value, str):
        return None
    is_list = isinstance(value, list) and len(value) <= _MAX_ENTRIES
    if not is_list or not all(isinstance(name, str) for name in value):
        raise _FieldError(f"target_modules is {value!r:.80}, neither names nor a pattern")
    return tuple(value)


def _layers(value: Any) -> frozenset[int] | None:  # noqa: ANN401 - as JSON has it
    if value is None:
        return None
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) > _MAX_ENTRIES or not all(type(number) is int for number in numbers):
        raise _FieldError(f"layers_to_transform is {value!r:.80}, not numbers of layers")
    return frozenset(numbers)


def _is_meant(module: str, name: str) -> bool:
    """As PEFT has it for plain names: the whole name, or its end from a dot on."""
    if name.startswith("^"):
        return module == name[1:]
    return module == name or module.endswith(f".{name}")
