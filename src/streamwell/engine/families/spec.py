"""What the lean decoder must know of a model. The defaults are Llama's; all else is a variation."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "clamped_swiglu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Slow frequencies are divided by `factor`, fast ones stay, those between are blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary position embeddings of some layers."""

    theta: float
    #: How many elements of a head turn; a family's mapping arranges that they are spread evenly
    #: over both halves of the head.
    dim: int
    #: What each of the `dim / 2` frequencies is divided by, or one number for all of them.
    divisors: tuple[float, ...] = (1.0,)
    llama3: Llama3Scaling | None = None
    #: Factor of cosines and sines.
    magnitude: float = 1.0
    #: Positions from here on would turn in another way.
    max_positions: int | None = None
    #: So many are meant to be asked for, though the config may name what they were stretched from.
    stretched_to: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts, each of them a feed-forward layer."""

    count: int
    num_per_token: int
    #: Whether the weights of a token's experts are made to sum up to one.
    sums_to_one: bool
    #: Layers that have experts; the others are dense.
    layers: frozenset[int]
    #: Whether one expert more, with a gate of its own, sees every token.
    has_shared: bool
    #: Whether all linear layers of a block must have biases; others may.
    has_biases: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """A decoder; the fields with defaults are the declared variations of its block.

    Biases of the projections are there if their weights are, and no field of the config switches
    them off.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    #: How many positions can be asked for.
    max_position_embeddings: int
    tie_word_embeddings: bool
    #: Sliding window of each layer in tokens; `None` sees everything.
    windows: tuple[int | None, ...]
    #: Rotary embeddings of each layer; `None` has none.
    ropes: tuple[Rope | None, ...]

    #: Root mean square, the same with one added to its weights, or layer norm with biases.
    norm: Literal["rms", "rms_plus_one", "layer"] = "rms"
    #: Where attention and feed-forward layers have norms: at their inputs, their outputs, or both.
    norm_placement: Literal["before", "after", "around"] = "before"
    #: What norms of queries and keys go over, if there are any.
    qk_norm: Literal["head", "projection"] | None = None
    #: Whether the feed-forward layer reads what attention reads, rather than its result.
    is_parallel: bool = False
    #: Whether it has no norm of its own then, but that of attention.
    shares_norm: bool = False
    activation: Activation = "silu"
    #: Whether the feed-forward layer multiplies a gate with a second projection.
    is_gated: bool = True
    experts: Experts | None = None
    #: Whether positions have learned embeddings, added to those of the tokens.
    has_position_embeddings: bool = False
    embedding_multiplier: float = 1.0
    #: Factor of what a layer adds to the residual stream.
    residual_multiplier: float = 1.0
    #: Factor of attention scores; `None` is `head_dim ** -0.5`.
    attention_scale: float | None = None
    #: Attention scores `x` become `cap * tanh(x / cap)`; so do logits with the next one.
    attention_softcap: float | None = None
    #: Whether each head has a score more, of no key: what it takes of softmax goes nowhere.
    has_sinks: bool = False
    logits_softcap: float | None = None
    logits_divisor: float = 1.0

    @property
    def scale(self) -> float:
        """The factor of attention scores."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    def experts_of(self, layer: int) -> Experts | None:
        """The experts of a layer, if it is a mixture of such."""
        is_mixture = self.experts is not None and layer in self.experts.layers
        return self.experts if is_mixture else None

    @property
    def variations(self) -> frozenset[str]:
        """The declared fields that are not Llama's."""
        declared = [field for field in fields(self) if field.default is not MISSING]
        return frozenset(f.name for f in declared if getattr(self, f.name) != f.default)
