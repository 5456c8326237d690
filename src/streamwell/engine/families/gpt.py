"""Families with layer norms and feed-forward layers that have no gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from streamwell.engine.families.family import Family, decoder_spec, even_head_dim
from streamwell.engine.families.fields import Fields, require
from streamwell.engine.families.layouts import Layout
from streamwell.engine.families.llama import same_window
from streamwell.engine.families.rope import read_rope
from streamwell.engine.families.spec import DecoderSpec, Rope

# --- GPT-2: learned positions ---


def _gpt2(fields: Fields) -> DecoderSpec:
    require(fields.flag("scale_attn_weights"))
    require(not fields.flag("scale_attn_by_inverse_layer_idx"))
    require(not fields.flag("add_cross_attention"))
    spec = _gpt_like(fields, None, num_kv_heads=fields.size("num_attention_heads"))
    return replace(spec, has_position_embeddings=True)


def _gpt_like(fields: Fields, rope: Rope | None, *, num_kv_heads: int) -> DecoderSpec:
    """What these families have in common."""
    spec = decoder_spec(
        fields,
        num_kv_heads=num_kv_heads,
        head_dim=even_head_dim(fields),
        ropes=[rope] * fields.num_layers,
    )
    return replace(spec, norm="layer", is_gated=False)


GPT2 = Family(
    read=_gpt2,
    defaults={
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    names={
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
    },
    layout=Layout(
        names=(
            (r"^(transformer\.)?h\.", "model.layers."),
            (r"^(transformer\.)?wte\.", "model.embed_tokens."),
            (r"^(transformer\.)?wpe\.", "model.embed_positions."),
            (r"^(transformer\.)?ln_f\.", "model.norm."),
            (r"\.ln_1\.", ".input_layernorm."),
            (r"\.ln_2\.", ".post_attention_layernorm."),
            (r"\.attn\.c_attn\.", ".self_attn.qkv_proj."),
            (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
            (r"\.mlp\.c_fc\.", ".mlp.up_proj."),
            (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
        ),
        is_transposed=True,
    ),
)

# --- GPT-NeoX and Pythia: parallel layers, a quarter of each head turns ---


def _gpt_neox(fields: Fields) -> DecoderSpec:
    rope = read_rope(
        fields,
        even_head_dim(fields),
        part=0.25,
        theta_name="rotary_emb_base",
        part_name="rotary_pct",
    )
    spec = _gpt_like(fields, rope, num_kv_heads=fields.size("num_attention_heads"))
    return replace(spec, is_parallel=fields.flag("use_parallel_residual"))


GPT_NEOX = Family(
    read=_gpt_neox,
    defaults={"use_parallel_residual": True, "tie_word_embeddings": False},
    names={"rms_norm_eps": "layer_norm_eps"},
    layout=Layout(
        names=(
            (r"^gpt_neox\.", "model."),
            (r"^model\.embed_in\.", "model.embed_tokens."),
            (r"^model\.final_layer_norm\.", "model.norm."),
            (r"^embed_out\.", "lm_head."),
            (r"\.attention\.query_key_value\.", ".self_attn.qkv_proj."),
            (r"\.attention\.dense\.", ".self_attn.o_proj."),
            (r"\.mlp\.dense_h_to_4h\.", ".mlp.up_proj."),
            (r"\.mlp\.dense_4h_to_h\.", ".mlp.down_proj."),
        ),
        is_interleaved=True,
    ),
)

# --- Phi-1 and Phi-2: parallel layers that share a norm, half of each head turns ---


def _phi(fields: Fields) -> DecoderSpec:
    rope = read_rope(fields, even_head_dim(fields), part=0.5)
    heads = fields.size("num_key_value_heads", null=fields.size("num_attention_heads"))
    spec = _gpt_like(fields, rope, num_kv_heads=heads)
    qk_norm: Literal["head"] | None = "head" if fields.flag("qk_layernorm") else None
    return replace(spec, is_parallel=True, shares_norm=True, qk_norm=qk_norm)


PHI = Family(
    read=_phi,
    defaults={"num_key_value_heads": None, "qk_layernorm": False, "tie_word_embeddings": False},
    names={"rms_norm_eps": "layer_norm_eps"},
    layout=Layout(
        names=(
            (r"^model\.final_layernorm\.", "model.norm."),
            (r"\.self_attn\.dense\.", ".self_attn.o_proj."),
            (r"\.self_attn\.([qk])_layernorm\.", r".self_attn.\1_norm."),
            (r"\.mlp\.fc1\.", ".mlp.up_proj."),
            (r"\.mlp\.fc2\.", ".mlp.down_proj."),
        ),
    ),
)

# --- Falcon: parallel layers, one head of keys for all, or for groups ---


def _falcon(fields: Fields) -> DecoderSpec:
    require(fields.given("n_embed") is None)
    require(not fields.flag("alibi"))
    num_heads, is_new = fields.size("num_attention_heads"), fields.flag("new_decoder_architecture")
    is_parallel = fields.flag("parallel_attn")
    num_norms = fields.size("num_ln_in_parallel_attn", null=2 if is_new else 1)
    if is_new:
        require(is_parallel and num_norms <= 2)
        num_kv_heads = fields.size("num_kv_heads", null=num_heads)
    else:
        require(num_norms == 1)
        num_kv_heads = 1 if fields.flag("multi_query") else num_heads
    rope = read_rope(fields, even_head_dim(fields))
    spec = _gpt_like(fields, rope, num_kv_heads=num_kv_heads)
    return replace(spec, is_parallel=is_parallel, shares_norm=is_parallel and num_norms == 1)


FALCON = Family(
    read=_falcon,
    defaults={
        "activation": "gelu",
        "alibi": False,
        "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 2048,
        "multi_query": True,
        "new_decoder_architecture": False,
        "num_kv_heads": None,
        "num_ln_in_parallel_attn": None,
        "parallel_attn": True,
        "tie_word_embeddings": True,
    },
    names={"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "activation"},
    layout=Layout(
        names=(
            (r"^transformer\.h\.", "model.layers."),
            (r"^transformer\.word_embeddings\.", "model.embed_tokens."),
            (r"^transformer\.ln_f\.", "model.norm."),
            (r"\.ln_attn\.", ".input_layernorm."),
            (r"\.ln_mlp\.", ".post_attention_layernorm."),
            (r"\.self_attention\.query_key_value\.", ".self_attn.qkv_proj."),
            (r"\.self_attention\.dense\.", ".self_attn.o_proj."),
            (r"\.mlp\.dense_h_to_4h\.", ".mlp.up_proj."),
            (r"\.mlp\.dense_4h_to_h\.", ".mlp.down_proj."),
        ),
        is_interleaved=True,
    ),
)

# --- StarCoder2: Llama's attention ---


def _starcoder2(fields: Fields) -> DecoderSpec:
    rope = read_rope(fields, even_head_dim(fields))
    spec = _gpt_like(fields, rope, num_kv_heads=fields.size("num_key_value_heads"))
    return replace(spec, windows=tuple(same_window(fields)))


STARCODER2 = Family(
    read=_starcoder2,
    defaults={"head_dim": None, "sliding_window": None, "tie_word_embeddings": True},
    names={"rms_norm_eps": "norm_epsilon"},
    layout=Layout(
        names=((r"\.mlp\.c_fc\.", ".mlp.up_proj."), (r"\.mlp\.c_proj\.", ".mlp.down_proj."))
    ),
)
