"""The model: its shape, and how it becomes a folder that can be served."""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from training.brooklet.tokenizer import save_tokenizer
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


def export(
    model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, target: Path
) -> None:
    """Write the finished folder file by file, so that a reader never meets half a file.

    Weights are rounded to float16, which halves the file; the config asks for float32 to compute.
    """
    target.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(target.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    stored = T5ForConditionalGeneration(model.config).half()
    stored.load_state_dict(model.state_dict())
    stored.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        max_length=MAX_INPUT,
    )
    stored.save_pretrained(staging)
    stored.config.dtype = "float32"  # saving the model had set it to the weights' own
    stored.config.save_pretrained(staging)
    save_tokenizer(tokenizer, staging)
    for file in staging.iterdir():
        file.chmod(0o644)
        file.replace(target / file.name)
    staging.rmdir()
