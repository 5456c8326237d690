"""Tiny encoder-decoders with random weights, as folders in the Hugging Face layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    MarianConfig,
    MBartConfig,
    MT5Config,
    PegasusConfig,
    PreTrainedConfig,
    T5Config,
)

VOCAB_SIZE, MAX_POSITIONS = 300, 64
PAD, START_OF_MARIAN = 0, 299

_T5: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 48,
    "d_kv": 16,  # heads together are narrower than the model, as in small T5s
    "d_ff": 80,
    "num_layers": 3,
    "num_decoder_layers": 2,  # more than the encoder has is too much for Transformers' cache
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,  # inputs reach the last bucket
    "pad_token_id": PAD,
    "eos_token_id": 1,
    "decoder_start_token_id": PAD,
}
_BART: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 48,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 1,
    "encoder_ffn_dim": 80,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": MAX_POSITIONS,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}

CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "t5": lambda: T5Config(**_T5, feed_forward_proj="relu"),
    "flan-t5": lambda: T5Config(**_T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mt5": lambda: MT5Config(**_T5),
    "t5-odd": lambda: T5Config(**_T5 | {"d_kv": 8, "num_heads": 4}, feed_forward_proj="gated-silu"),
    "bart": lambda: BartConfig(**_BART),
    "bart-scaled": lambda: BartConfig(
        **_BART, scale_embedding=True, activation_function="gelu_new"
    ),
    "mbart": lambda: MBartConfig(**_BART | {"decoder_start_token_id": 7}, scale_embedding=True),
    "marian": lambda: MarianConfig(
        **_BART | {"pad_token_id": START_OF_MARIAN, "decoder_start_token_id": START_OF_MARIAN},
        scale_embedding=True,
        activation_function="swish",
    ),
    "pegasus": lambda: PegasusConfig(
        **_BART | {"decoder_start_token_id": 0}, activation_function="relu"
    ),
}
#: Those whose heads are no multiple of what the native helper computes at once.
NOT_NATIVE = ("t5-odd",)
#: Those whose head has weights of its own, as flan-T5's and mT5's have.
UNTIED = ("flan-t5", "mt5")
#: What their `generation_config.json` says beside.
_GENERATION: dict[str, dict[str, Any]] = {
    "bart": {"forced_bos_token_id": 0},
    "marian": {"bad_words_ids": [[START_OF_MARIAN]]},
}


def build(name: str, folder: Path) -> Path:
    """Write the model of this name into a folder; the same weights every time."""
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(CONFIGS[name]())
    if name in UNTIED:
        model.lm_head.weight = torch.nn.Parameter(torch.empty(VOCAB_SIZE, _T5["d_model"]))
    with torch.no_grad():
        for key, tensor in (*model.named_parameters(), *model.named_buffers()):
            if "embed_positions" in key and name in ("marian", "pegasus"):
                continue  # sines and cosines
            # large, and biases and norms too, so that a mistake anywhere shows in the tokens
            is_matrix = tensor.dim() > 1 and len(tensor) > 1
            mean = float(key.endswith("norm.weight"))
            torch.nn.init.normal_(tensor, mean=mean, std=0.5 if is_matrix else 0.2)
            if key.endswith("Attention.q.weight"):  # T5 does not scale scores, it is born that way
                tensor /= model.config.d_kv**0.5
        # not so large that a token says itself again
        torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.3)
    model.save_pretrained(folder)
    if name in UNTIED:  # as their authors saved them; Transformers 5 says it in another way
        edit(folder / "config.json", tie_word_embeddings=False, scale_decoder_outputs=None)
    edit(folder / "generation_config.json", **_GENERATION.get(name, {}))
    return folder


def edit(path: Path, **changes: Any) -> None:  # noqa: ANN401 - JSON
    """Change fields of a JSON object; `None` takes one away."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))
