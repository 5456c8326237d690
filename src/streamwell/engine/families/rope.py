"""Reads rotary position embeddings from a config, in all the ways that it has been written down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streamwell.engine.families.fields import MAX_SIZE, Fields, number, require
from streamwell.engine.families.spec import Llama3Scaling, Rope

DEFAULT_THETA = 10_000.0


def read_rope(
    fields: Fields,
    head_dim: int,
    *,
    theta: float = DEFAULT_THETA,
    part: float | None = None,
    theta_name: str = "rope_theta",
    part_name: str = "partial_rotary_factor",
) -> Rope:
    """The rotary embeddings of a model that has the same in all layers.

    Args:
        fields: the config.
        head_dim: elements of a head.
        theta: what the family takes if nothing is said.
        part: the share of a head that turns if nothing is said; `None`: always all of it.
        theta_name: what the family called it before `rope_parameters`.
        part_name: the same for the share.
    """
    given = fields.given("rope_scaling") or fields.given("rope_parameters") or {}
    require(isinstance(given, dict) and not any(isinstance(v, dict) for v in given.values()))
    turning = given.get("partial_rotary_factor", fields.given(part_name))
    if turning is None:
        turning = 1.0 if part is None else part
    require(part is not None or turning == 1)
    old_theta = fields.given(theta_name)
    given = {"rope_theta": theta if old_theta is None else old_theta, **given}
    return parse_rope(given, int(head_dim * number(turning)), fields)


def parse_rope(given: Mapping[str, Any], dim: int, fields: Fields) -> Rope:
    """Rotary embeddings as `rope_parameters` has them, for `dim` elements of a head."""
    require(dim > 0 and dim % 2 == 0)
    theta = number(given.get("rope_theta"))
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "linear":
        return Rope(theta=theta, dim=dim, divisors=(number(given.get("factor")),))
    if kind == "llama3":
        return Rope(theta=theta, dim=dim, llama3=_llama3(given, fields))
    if kind in ("longrope", "su"):
        return _longrope(given, theta, dim, fields)
    if kind == "yarn":
        return _yarn(given, theta, dim, fields)
    # frequencies of "dynamic" change beyond the trained positions only, and those are not served
    require(kind in ("default", "dynamic"))
    return Rope(theta=theta, dim=dim)


def _llama3(given: Mapping[str, Any], fields: Fields) -> Llama3Scaling:
    require(fields.given("original_max_position_embeddings") is None)
    return Llama3Scaling(
        factor=number(given.get("factor")),
        low_freq_factor=number(given.get("low_freq_factor")),
        high_freq_factor=number(given.get("high_freq_factor")),
        original_max_positions=_positive(given.get("original_max_position_embeddings")),
    )


def _longrope(given: Mapping[str, Any], theta: float, dim: int, fields: Fields) -> Rope:
    """LongRoPE (Ding et al. 2024) within the original context.

    Beyond it the factors are others, for old positions too: what is cached would not fit them.
    """
    original = _positive(_original(given, fields))
    short = given.get("short_factor")
    require(isinstance(short, list) and len(short) == dim // 2)
    magnitude = given.get("attention_factor")
    if magnitude is None:
        excess = max(_factor(given, original, fields), 1.0)
        magnitude = math.sqrt(1 + math.log(excess) / math.log(original))
    return Rope(
        theta=theta,
        dim=dim,
        divisors=tuple(number(value) for value in short or ()),
        magnitude=number(magnitude),
        max_positions=original,
    )


def _yarn(given: Mapping[str, Any], theta: float, dim: int, fields: Fields) -> Rope:
    """YaRN (Peng et al. 2023): what turns slowly is divided by a factor, what turns fast stays.

    Slow is what turns fewer than `beta_slow` times within the original context, fast what turns
    more than `beta_fast` times; those between are blended.
    """
    original = _original(given, fields)
    original = fields.size("max_position_embeddings") if original is None else _positive(original)
    factor = _factor(given, original, fields)
    require(theta > 1 and factor > 0 and original * factor < MAX_SIZE)

    def pair_that_turns(times: float) -> float:
        require(1e-6 < times < 1e6)
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    fast = pair_that_turns(number(given.get("beta_fast") or 32))
    slow = pair_that_turns(number(given.get("beta_slow") or 1))
    if given.get("truncate", True):
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, dim - 1)
    width = slow - fast or 0.001
    slowness = (min(max((pair - fast) / width, 0.0), 1.0) for pair in range(dim // 2))
    return Rope(
        theta=theta,
        dim=dim,
        divisors=tuple(1 / (share / factor + 1 - share) for share in slowness),
        magnitude=_yarn_magnitude(given, factor),
        stretched_to=int(original * factor),
    )


def _yarn_magnitude(given: Mapping[str, Any], factor: float) -> float:
    """Factor of cosines and sines, as Transformers computes it where it is not given."""
    if given.get("attention_factor") is not None:
        return number(given["attention_factor"])
    growth = 0.1 * math.log(max(factor, 1.0))
    scale, scale_of_all = given.get("mscale"), given.get("mscale_all_dim")
    if scale and scale_of_all:
        whole = 1 + number(scale_of_all) * growth
        require(whole > 0)
        return (1 + number(scale) * growth) / whole
    return 1 + growth


def _original(given: Mapping[str, Any], fields: Fields) -> Any:  # noqa: ANN401 - as JSON has it
    """The context that a model was trained with first; what the config itself says comes first."""
    outside = fields.given("original_max_position_embeddings")
    return given.get("original_max_position_embeddings") if outside is None else outside


def _factor(given: Mapping[str, Any], original: int, fields: Fields) -> float:
    """How many times as long the context has become."""
    factor = given.get("factor")
    return fields.size("max_position_embeddings") / original if factor is None else number(factor)


def _positive(value: Any) -> int:  # noqa: ANN401 - as JSON has it
    require(type(value) is int and value > 1)
    return int(value)
