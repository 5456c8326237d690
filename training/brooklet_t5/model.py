"""The model: its shape, and how it becomes a folder that can be served."""

from __future__ import annotations

from pathlib import Path

from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from training.brooklet_t5.tokenizer import MAX_INPUT

ARTEFACTS = Path(__file__).resolve().parents[2] / "src/streamwell/models/brooklet_t5"


def make_model(tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
    """Create the untrained model: a T5 of version 1.1, but with tied embeddings."""
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=192,
        d_kv=32,
        d_ff=384,
        num_layers=4,
        num_decoder_layers=4,
        num_heads=6,
        feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=64,  # each distance up to 15 has its own
        tie_word_embeddings=True,
        dropout_rate=0.0,  # no example comes twice
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return T5ForConditionalGeneration(config)


def generation_config(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    """How the model is decoded where a request does not say: greedily, to its end."""
    return GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        max_length=MAX_INPUT,
    )
