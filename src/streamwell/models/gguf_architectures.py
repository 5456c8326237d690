"""The architectures of GGUF files that are known completely: what they call things, and store.

llama.cpp's converter (convert_hf_to_gguf.py) renames fields and tensors, and changes some of them;
here is what it does, family by family, so that it can be undone. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What `general.architecture` stands for."""

    #: Of Transformers' config.
    model_type: str
    #: Fields of its config by the keys of the file, without the name of the architecture.
    fields: Mapping[str, str] = field(default_factory=dict)
    #: What is the same in all models of the family, and in no key.
    constants: Mapping[str, Any] = field(default_factory=dict)
    #: The same for rotary scaling.
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    #: Keys of `FIELDS` that it does not have.
    lacks: frozenset[str] = frozenset()
    #: Tensors of a layer: their names in Transformers, where they differ from Llama's; or none, for
    #: those that Llama has, and of which another kind stands in such files.
    names: Mapping[str, str] = field(default_factory=dict)
    #: Whether rows of queries and keys that turn together were put next to each other.
    is_paired: bool = False
    #: Whether one was added to the weights of norms.
    adds_one: bool = False
    #: Whether only a part of a head may turn.
    turns_partly: bool = False


#: Keys of all of them, and the fields they stand for.
FIELDS: Mapping[str, str] = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
#: Tensors outside of layers.
OUTER: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
#: Tensors of a layer under Llama's names; `{}` is the number of an expert.
INNER: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_SILU = {"hidden_act": "silu"}
_GELU = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
_EXPERTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
_GEMMA_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_OUTPUT_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OLMO = Architecture(model_type="olmo2", constants=_SILU, names=_OUTPUT_NORMS)
_COHERE = Architecture(
    model_type="cohere",
    fields={"attention.layer_norm_epsilon": "layer_norm_eps", "logit_scale": "logit_scale"},
    constants=_SILU | {"use_qk_norm": False},
    lacks=frozenset({"attention.layer_norm_rms_epsilon"}),
    names={"attn_q_norm": "", "attn_k_norm": ""},
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(model_type="llama", constants=_SILU, is_paired=True),
    "mistral3": Architecture(
        model_type="mistral", constants=_SILU | {"sliding_window": None}, is_paired=True
    ),
    "qwen2": Architecture(model_type="qwen2", constants=_SILU),
    "qwen3": Architecture(model_type="qwen3", constants=_SILU),
    "qwen2moe": Architecture(
        model_type="qwen2_moe",
        fields=_EXPERTS
        | {
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        constants=_SILU | {"norm_topk_prob": False},
    ),
    "qwen3moe": Architecture(
        model_type="qwen3_moe",
        fields=_EXPERTS | {"expert_feed_forward_length": "moe_intermediate_size"},
        constants=_SILU | {"norm_topk_prob": True},
    ),
    "smollm3": Architecture(
        model_type="smollm3",
        constants=_SILU | {"no_rope_layers": None, "no_rope_layer_interval": 4},
        is_paired=True,
    ),
    "gpt-oss": Architecture(
        model_type="gpt_oss",
        fields=_EXPERTS
        | _WINDOW
        | {
            "expert_count": "num_local_experts",
            "expert_feed_forward_length": "intermediate_size",
        },
        constants=_SILU,
        names={"attn_sinks": "self_attn.sinks", "post_attention_norm": "post_attention_layernorm"},
        rope_scaling={"truncate": False},
    ),
    "olmo2": _OLMO,
    "exaone4": Architecture(
        model_type="exaone4",
        fields=_WINDOW,
        constants=_SILU | {"sliding_window": None},
        names=_OUTPUT_NORMS,
    ),
    "seed_oss": Architecture(
        model_type="seed_oss",
        constants=_SILU,
        names={"post_attention_norm": "post_attention_layernorm"},
    ),
    "glm4": Architecture(
        model_type="glm4",
        constants=_SILU,
        names={
            "ffn_up": "mlp.gate_up_proj",
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        turns_partly=True,
    ),
    "ernie4_5": Architecture(model_type="ernie4_5", constants=_SILU),
    "command-r": _COHERE,
    "cohere2": replace(_COHERE, model_type="cohere2", fields={**_COHERE.fields, **_WINDOW}),
    "granite": Architecture(
        model_type="granite",
        fields={
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        constants=_SILU,
        is_paired=True,
    ),
    "phi3": Architecture(
        model_type="phi3",
        fields=_WINDOW,
        constants=_SILU,
        names={"ffn_up": "mlp.gate_up_proj"},
        turns_partly=True,
    ),
    "gemma": Architecture(model_type="gemma", constants=_GELU, adds_one=True),
    "gemma2": Architecture(
        model_type="gemma2",
        fields=_WINDOW
        | {
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        constants=_GELU,
        names=_GEMMA_NORMS,
        adds_one=True,
    ),
    "gemma3": Architecture(
        model_type="gemma3_text",
        fields=_WINDOW
        | {
            "final_logit_softcapping": "final_logit_softcapping",
            "rope.freq_base_swa": "rope_local_base_freq",
            "attention.sliding_window_pattern": "sliding_window_pattern",
        },
        constants=_GELU,
        names=_GEMMA_NORMS,
        adds_one=True,
    ),
}


#: What a file of such an architecture is instead, if it has such a key, and that is not zero.
_VARIANTS: Mapping[str, tuple[str, Architecture]] = {
    "llama": (
        "expert_count",
        Architecture(
            model_type="mixtral",
            fields=_EXPERTS | {"expert_count": "num_local_experts"},
            constants=_SILU,
            is_paired=True,
        ),
    ),
    "mistral3": (
        "attention.temperature_scale",
        Architecture(
            model_type="ministral3",
            constants=_SILU | {"sliding_window": None},
            is_paired=True,
        ),
    ),
    "olmo2": ("attention.sliding_window", replace(_OLMO, model_type="olmo3", fields=_WINDOW)),
}


def architecture_of(metadata: Mapping[str, Any]) -> Architecture | None:
    """The architecture of a file by its metadata; `None` if it is not known."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        return None
    key, variant = _VARIANTS.get(name, ("", None))
    return variant if variant and metadata.get(f"{name}.{key}") else ARCHITECTURES.get(name)
