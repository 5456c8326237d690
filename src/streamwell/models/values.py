"""Values in the JSON files of a model folder that no honest model has: wrong types, no sizes.

Taken as they are they would end in a division by zero, or in answers that nobody meant. What else
a config claims is held against the weights in `claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from streamwell.core.errors import LoadError

#: Whole numbers from one on, or null; some families list one per layer.
_SIZES = frozenset(
    {
        "d_ff",
        "d_kv",
        "d_model",
        "decoder_attention_heads",
        "decoder_ffn_dim",
        "decoder_layers",
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "encoder_layers",
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "moe_intermediate_size",
        "n_embd",
        "n_head",
        "n_layer",
        "n_positions",
        "num_attention_heads",
        "num_decoder_layers",
        "num_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "num_layers",
        "relative_attention_max_distance",
        "relative_attention_num_buckets",
        "vocab_size",
    }
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
#: Finite numbers, or null.
_NUMBERS = frozenset(
    {
        "attention_factor",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "mscale",
        "mscale_all_dim",
        "norm_eps",
        "norm_epsilon",
        "rms_norm_eps",
        "rope_local_base_freq",
        "rope_theta",
    }
)
#: Numbers above zero, in what is said of rotary embeddings.
_POSITIVE = frozenset(
    {
        "beta_fast",
        "beta_slow",
        "factor",
        "high_freq_factor",
        "low_freq_factor",
        "original_max_position_embeddings",
    }
)
#: Objects, or null.
_OBJECTS = frozenset({"rope_parameters", "rope_scaling", "text_config"})
#: Names of types, or null.
_TYPES = frozenset({"dtype", "torch_dtype"})
#: Ids of tokens, one or several; -1 and the like stand for none.
_TOKEN_IDS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
#: The least and the most of what `generation_config.json` says; beyond it nothing has a meaning.
_SAMPLING = {
    "temperature": (0.0, 1e6),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "top_k": (-1.0, 1e9),
    "repetition_penalty": (1e-6, 1e6),
    "max_new_tokens": (0.0, 1e12),
}
_WHOLE = ("top_k", "max_new_tokens")
_MAX = 1e300


def check_config(file: Path, config: Mapping[str, Any]) -> None:
    """Look at the sizes and numbers of a `config.json`, also of the language model within one.

    Raises:
        LoadError: names the field.
    """
    for where, part in _parts(config):
        for name, value in part.items():
            problem = _problem(name, value)
            if problem is not None:
                raise LoadError(f"{file}: {where}{name} is {value!r:.40}, {problem}")
        _check_experts(file, where, part)
        _check_ids(file, where, part)


def check_generation(file: Path, config: Mapping[str, Any]) -> None:
    """Look at what a `generation_config.json` recommends.

    Raises:
        LoadError: names the field.
    """
    for name, (least, most) in _SAMPLING.items():
        value = config.get(name)
        if value is None:
            continue
        if not _is_number(value) or (name in _WHOLE and value != int(value)):
            kind = "whole number" if name in _WHOLE else "number"
            raise LoadError(f"{file}: {name} is {value!r:.40}, not a {kind}")
        if not least <= value <= most:
            raise LoadError(f"{file}: {name} is {value!r:.40}, not from {least:g} to {most:g}")
    _check_ids(file, "", config)


def _parts(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The config, that of a language model within it, and what they say of rotary embeddings."""
    todo: list[tuple[str, Any]] = [("", config)]
    while todo:
        where, part = todo.pop()
        if not isinstance(part, dict):
            continue
        yield where, part
        inner = ("text_config", "rope_parameters", "rope_scaling")
        todo += [(f"{where}{name}.", part[name]) for name in inner if name in part]
        if where.endswith(("rope_parameters.", "rope_scaling.")):  # one for each kind of layer
            todo += [(f"{where}{name}.", value) for name, value in part.items()]


def _problem(name: str, value: object) -> str | None:
    """What is wrong with the value of a field, as the end of a sentence."""
    if value is None:
        return None
    problems = (told for names, fits, told in _KINDS if name in names and not fits(value))
    return next(problems, None)


def _check_experts(file: Path, where: str, part: Mapping[str, Any]) -> None:
    """No experts at all are fine: some families have dense models too."""
    counts = {name: part[name] for name in _EXPERTS if part.get(name) is not None}
    for name, count in counts.items():
        if not isinstance(count, list) and not _is_count(count):
            raise LoadError(f"{file}: {where}{name} is {count!r:.40}, not a whole number")
    most = max((count for count in counts.values() if _is_count(count)), default=None)
    chosen = part.get("num_experts_per_tok")
    if chosen is None or (chosen == 0 and most == 0):
        return
    if not _is_count(chosen) or chosen == 0 or (most is not None and chosen > most):
        of = "" if most is None else f" of {most}"
        raise LoadError(f"{file}: {where}num_experts_per_tok is {chosen!r:.40}{of}")


def _check_ids(file: Path, where: str, part: Mapping[str, Any]) -> None:
    for name in _TOKEN_IDS:
        value = part.get(name)
        ids = value if isinstance(value, list) else [value]
        if value is not None and not all(type(token_id) is int for token_id in ids):
            raise LoadError(f"{file}: {where}{name} is {value!r:.40}, not the id of a token")


def _is_number(value: object) -> TypeGuard[float]:
    """One that can be computed with: neither NaN nor an integer too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _is_size(value: object) -> bool:
    return isinstance(value, list) or (_is_count(value) and value > 0)


#: Names of fields, whether a value is of their kind, and what is told if it is not.
_KINDS: tuple[tuple[frozenset[str], Callable[[Any], bool], str], ...] = (
    (_OBJECTS, lambda value: isinstance(value, dict), "not an object"),
    (_TYPES, lambda value: isinstance(value, str), "not the name of a type"),
    (_SIZES, _is_size, "not a whole number above zero"),
    (_NUMBERS | _POSITIVE, _is_number, "not a number, or too large a one"),
    (_POSITIVE, lambda value: value > 0, "not above zero"),
)
