"""Which encoder-decoder families are known, and how their configs and weights map onto ours.

A family is its fields and names here, and a golden test against Transformers. What a config leaves
out has the default of Transformers' config of the family; what is not known is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamwell.core.errors import LoadError

Config = Mapping[str, Any]
#: Regular expressions and replacements that turn a family's weight names into ours, in order.
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """The encoder, or the decoder."""

    num_layers: int
    num_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class RelativeBias:
    """T5's: what is added to a score depends on how far apart its two tokens are."""

    num_buckets: int
    max_distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seq2SeqSpec:
    """An encoder-decoder of blocks: attention, attention to the input, feed-forward.

    Biases of projections and norms are there if their weights are.
    """

    encoder: Stack
    decoder: Stack
    #: Each part of a block is `x + f(norm(x))`, or else `norm(x + f(x))`.
    is_norm_first: bool
    #: Root mean square norms, or else layer norms.
    is_rms_norm: bool
    norm_eps: float
    #: Norms after the embedding, and after the last block.
    has_embedding_norm: bool
    has_final_norm: bool
    #: A name of Transformers', e.g. `gelu_new`.
    activation: str
    is_gated: bool
    #: Scores are divided by the square root of the head's size.
    is_attention_scaled: bool
    #: Positions are added to embeddings: from a table that was learned (and begins with two unused
    #: rows), or sines and cosines; `None` of both where there is a relative bias.
    has_learned_positions: bool
    relative_bias: RelativeBias | None
    #: Factors of the embeddings, and of what the head reads.
    embedding_scale: float
    head_scale: float
    names: Names
    #: What the decoder's text begins with before it says anything of its own.
    start_ids: tuple[int, ...] = ()
    #: Never said.
    banned_ids: tuple[int, ...] = ()


_T5_NAMES: Names = (
    (r"^(encoder|decoder)\.block\.(\d+)\.layer\.0\.SelfAttention\.relative.*", r"\1.\2.bias"),
    (r"^(encoder|decoder)\.block\.(\d+)\.layer\.0\.SelfAttention\.", r"\1.\2.self."),
    (r"^(encoder|decoder)\.block\.(\d+)\.layer\.0\.layer_norm\.", r"\1.\2.self_norm."),
    (r"^decoder\.block\.(\d+)\.layer\.1\.EncDecAttention\.", r"decoder.\1.cross."),
    (r"^decoder\.block\.(\d+)\.layer\.1\.layer_norm\.", r"decoder.\1.cross_norm."),
    (r"^(encoder|decoder)\.block\.(\d+)\.layer\.\d\.DenseReluDense\.", r"\1.\2."),
    (r"^(encoder|decoder)\.block\.(\d+)\.layer\.\d\.layer_norm\.", r"\1.\2.inner_norm."),
    (r"\.(wi|wi_1)\.", r".up."),
    (r"\.wi_0\.", r".gate."),
    (r"\.wo\.", r".down."),
    (r"\.final_layer_norm\.", r".norm."),
    (r"\.embed_tokens\.", r".embedding."),
)
_BART_NAMES: Names = (
    (r"^model\.", r""),
    (r"^final_logits_bias$", r"lm_head.bias"),
    (r"\.layers\.(\d+)\.final_layer_norm\.", r".\1.inner_norm."),
    (r"\.layers\.(\d+)\.", r".\1."),
    (r"\.self_attn\.", r".self."),
    (r"\.encoder_attn\.", r".cross."),
    (r"\.self_attn_layer_norm\.", r".self_norm."),
    (r"\.encoder_attn_layer_norm\.", r".cross_norm."),
    (r"\.([qkv])_proj\.", r".\1."),
    (r"\.out_proj\.", r".o."),
    (r"\.fc1\.", r".up."),
    (r"\.fc2\.", r".down."),
    (r"\.layernorm_embedding\.", r".embedding_norm."),
    (r"\.layer_norm\.", r".norm."),
    (r"\.embed_positions\.weight$", r".positions"),
    (r"\.embed_tokens\.", r".embedding."),
)


def our_name(names: Names, name: str) -> str:
    """Our name of a weight, e.g. `decoder.3.cross.q.weight`."""
    for pattern, replacement in names:
        name = re.sub(pattern, replacement, name)
    return name


def _t5(config: Config, *, feed_forward: str, scales_head: bool) -> Seq2SeqSpec:
    kind, *activation = config.get("feed_forward_proj", feed_forward).split("-")
    is_gated = kind == "gated" and len(activation) == 1
    if not is_gated and activation:
        raise LoadError(f"feed_forward_proj {config['feed_forward_proj']!r} is not known")
    name = activation[0] if is_gated else kind
    num_layers = config["num_layers"]
    num_heads, head_dim = config["num_heads"], config.get("d_kv", 64)
    num_buckets = config.get("relative_attention_num_buckets", 32)
    max_distance = config.get("relative_attention_max_distance", 128)
    if not max_distance > num_buckets // 2 > 1:  # half of them are for near ones, one by one
        raise LoadError(
            f"config.json: relative_attention_max_distance is {max_distance}, which is too near "
            f"for {num_buckets} in relative_attention_num_buckets"
        )
    return Seq2SeqSpec(
        encoder=Stack(num_layers, num_heads, head_dim),
        decoder=Stack(config.get("num_decoder_layers") or num_layers, num_heads, head_dim),
        is_norm_first=True,
        is_rms_norm=True,
        norm_eps=config.get("layer_norm_epsilon", 1e-6),
        has_embedding_norm=False,
        has_final_norm=True,
        activation="gelu_new" if is_gated and name == "gelu" else name,
        is_gated=is_gated,
        is_attention_scaled=False,
        has_learned_positions=False,
        relative_bias=RelativeBias(num_buckets, max_distance),
        embedding_scale=1.0,
        head_scale=config["d_model"] ** -0.5 if scales_head else 1.0,
        names=_T5_NAMES,
    )


def _t5_of_any_version(config: Config) -> Seq2SeqSpec:
    # versions 1.1 and later do not scale, and their configs say so by not tying the embeddings;
    # Transformers 5 writes it down
    is_tied = config.get("tie_word_embeddings") is not False
    scales_head = config.get("scale_decoder_outputs", is_tied)
    return _t5(config, feed_forward="relu", scales_head=scales_head)


def _mt5(config: Config) -> Seq2SeqSpec:
    return _t5(config, feed_forward="gated-gelu", scales_head=False)


def _bart(
    config: Config,
    *,
    is_norm_first: bool = False,
    has_embedding_norm: bool = True,
    has_learned_positions: bool = True,
) -> Seq2SeqSpec:
    if not config.get("share_encoder_decoder_embeddings", True):
        raise LoadError("encoder and decoder have vocabularies of their own")
    hidden = config["d_model"]

    def stack(name: str) -> Stack:
        num_heads = config[f"{name}_attention_heads"]
        return Stack(config[f"{name}_layers"], num_heads, hidden // num_heads)

    return Seq2SeqSpec(
        encoder=stack("encoder"),
        decoder=stack("decoder"),
        is_norm_first=is_norm_first,
        is_rms_norm=False,
        norm_eps=1e-5,
        has_embedding_norm=has_embedding_norm,
        has_final_norm=is_norm_first,
        activation=config.get("activation_function", "gelu"),
        is_gated=False,
        is_attention_scaled=True,
        has_learned_positions=has_learned_positions,
        relative_bias=None,
        embedding_scale=hidden**0.5 if config.get("scale_embedding", False) else 1.0,
        head_scale=1.0,
        names=_BART_NAMES,
    )


def _mbart(config: Config) -> Seq2SeqSpec:
    return _bart(config, is_norm_first=True)


def _pegasus(config: Config) -> Seq2SeqSpec:
    return _bart(config, is_norm_first=True, has_embedding_norm=False, has_learned_positions=False)


def _marian(config: Config) -> Seq2SeqSpec:
    return _bart(config, has_embedding_norm=False, has_learned_positions=False)


#: By `model_type`.
FAMILIES: Mapping[str, Callable[[Config], Seq2SeqSpec]] = {
    "t5": _t5_of_any_version,
    "mt5": _mt5,
    "bart": _bart,
    "mbart": _mbart,
    "marian": _marian,
    "pegasus": _pegasus,
}


def is_encoder_decoder(config: Config) -> bool:
    """Whether a `config.json` is that of an encoder-decoder."""
    return bool(config.get("is_encoder_decoder", config.get("model_type") in _ALWAYS))


#: What their decoders start with where no config says it.
_STARTS = {"mt5": 0, "bart": 2, "marian": 58100, "pegasus": 0}
#: Families whose older configs do not say what they are, since there is nothing else.
_ALWAYS = ("t5", "mt5", "marian")


def describe(config: Config, generation_config: Config) -> Seq2SeqSpec:
    """The spec of a model.

    Args:
        config: its `config.json`.
        generation_config: its `generation_config.json`, which counts more; may be empty.

    Raises:
        LoadError: it is not one of the families that are known, or not known completely.
    """
    family = FAMILIES.get(config.get("model_type", ""))
    names = config.get("architectures") or [config.get("model_type")]
    if family is None or "quantization_config" in config or not _generates(names[0]):
        raise LoadError(
            f"this encoder-decoder ({names[0]}) cannot be served; those that can are "
            f"{', '.join(FAMILIES)} models that generate, with weights that are not quantised"
        )
    said = generation_config or config
    start_ids = _start_ids(config, said)
    return replace(family(config), start_ids=start_ids, banned_ids=_banned_ids(said))


def _start_ids(config: Config, said: Config) -> tuple[int, ...]:
    """How `generate` begins: a start, and perhaps a token that is forced, such as a language's."""
    default = _STARTS.get(config["model_type"], said.get("bos_token_id"))
    starts = [source.get("decoder_start_token_id") for source in (said, config)]
    ids: list[Any] = [next((start for start in starts if start is not None), default)]
    forced = said.get("forced_bos_token_id")
    if said is config and config.get("force_bos_token_to_be_generated"):  # BART's, before 4.10
        forced = config.get("bos_token_id")
    if forced is not None:
        ids.append(forced)
    if not all(isinstance(i, int) and i >= 0 for i in ids):
        raise LoadError(f"decoder_start_token_id, forced_bos_token_id: {ids} are no token ids")
    return tuple(ids)


def _banned_ids(said: Config) -> tuple[int, ...]:
    """Tokens that `generate` would never choose; words of several tokens are not looked for."""
    ends = said.get("eos_token_id")
    words = [ids[0] for ids in said.get("bad_words_ids") or [] if len(ids) == 1]
    banned = {*words, *(said.get("suppress_tokens") or [])}
    return tuple(sorted(banned.difference(ends if isinstance(ends, list) else [ends])))


def _generates(architecture: object) -> bool:
    """Whether a class of Transformers has a head that says tokens; `T5Model` counts."""
    name = str(architecture)
    return not re.search(r"For(?!ConditionalGeneration)|EncoderModel", name)
