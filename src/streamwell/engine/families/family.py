"""What makes up a family, and what most of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamwell.engine.families.fields import Fields, require
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.rope import parse_rope, read_rope
from streamwell.engine.families.spec import Activation, DecoderSpec, Rope

#: What Transformers calls kinds of layers.
FULL, SLIDING = "full_attention", "sliding_attention"
#: What Transformers calls activations. Several names stand for the approximation with `tanh`.
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that share a `model_type`."""

    #: Raises `NotKnownError` at what it does not understand.
    read: Callable[[Fields], DecoderSpec]
    #: What a config may leave out: these are Transformers' values, under the family's own names.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: What the family calls some of Llama's fields, by Llama's names.
    names: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    #: How its weights may come rounded, by the `quant_method` of a `quantization_config`.
    rounded_by: tuple[str, ...] = ()


def decoder_spec(
    fields: Fields,
    *,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    windows: Sequence[int | None] | None = None,
    ropes: Sequence[Rope | None] | None = None,
    activation: Activation | None = None,
) -> DecoderSpec:
    """Llama's block in the sizes that Llama's fields say, but for what is given.

    The variations are the families' own, who put them in with `dataclasses.replace`.

    Raises:
        NotKnownError: something is missing or makes no sense.
    """
    num_layers, num_heads = fields.num_layers, fields.size("num_attention_heads")
    num_kv_heads = num_kv_heads or fields.size("num_key_value_heads", null=num_heads)
    head_dim = head_dim or head_dim_of(fields)
    norm_eps = fields.number("rms_norm_eps")
    require(num_heads % num_kv_heads == 0 and head_dim % 2 == 0 and 0 <= norm_eps < 1)
    ropes = [read_rope(fields, head_dim)] * num_layers if ropes is None else ropes
    reach = max(rope.stretched_to if rope else 0 for rope in ropes)
    limits = [rope.max_positions for rope in ropes if rope and rope.max_positions]
    return DecoderSpec(
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=norm_eps,
        max_position_embeddings=min([max(fields.size("max_position_embeddings"), reach), *limits]),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        windows=tuple(windows or [None] * num_layers),
        ropes=tuple(ropes),
        activation=activation or _activation(fields),
    )


def _activation(fields: Fields) -> Activation:
    return fields.choice("hidden_act", _ACTIVATIONS)


def head_dim_of(fields: Fields) -> int:
    """The size of heads; null stands for an even share of the hidden size."""
    share = fields.size("hidden_size") // fields.size("num_attention_heads")
    return fields.size("head_dim", null=share)


def even_head_dim(fields: Fields) -> int:
    """The same in families that have no size of heads of its own."""
    head_dim = fields.size("hidden_size") // fields.size("num_attention_heads")
    require(fields.given("head_dim") in (None, head_dim))
    return head_dim


def kinds_of(fields: Fields, derived: list[str]) -> list[str]:
    """Kinds of layers as Transformers names them: what the config says, or what follows from it."""
    kinds = fields.get("layer_types") or derived
    require(isinstance(kinds, list) and len(kinds) == fields.num_layers)
    require(all(kind in (FULL, SLIDING) for kind in kinds))
    return list(kinds)


def every_so_many(fields: Fields, period: int) -> list[str]:
    """Every so many layers one sees everything; the others slide."""
    return [FULL if number % period == 0 else SLIDING for number in range(1, fields.num_layers + 1)]


def windows_of(kinds: Sequence[str], fields: Fields) -> list[int | None]:
    """The window of each layer, by their kinds."""
    window = fields.size("sliding_window") if SLIDING in kinds else None
    return [window if kind == SLIDING else None for kind in kinds]


def ropes_by_kind(fields: Fields, thetas: Mapping[str, float]) -> dict[str, Rope]:
    """Rotary embeddings by kind of layer; of old, a scaling was that of global layers."""
    nested = fields.given("rope_parameters") or {}
    scaling = fields.given("rope_scaling") or {}
    require(isinstance(nested, dict) and isinstance(scaling, dict))
    require(nested.keys() <= thetas.keys())
    given = {kind: {"rope_theta": t, **(nested.get(kind) or {})} for kind, t in thetas.items()}
    require(not scaling or "rope_type" in scaling)  # by its old name Transformers ignores it
    given[FULL] |= scaling
    require(all(rope.get("partial_rotary_factor", 1) == 1 for rope in given.values()))
    head_dim = head_dim_of(fields)
    return {kind: parse_rope(rope, head_dim, fields) for kind, rope in given.items()}
