"""A tiny T5 with random weights and a tokenizer whose words are `w3` to `w299`."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

VOCAB_SIZE = 300
PAD, EOS, UNKNOWN = "<pad>", "</s>", "<unk>"


def build_tiny_t5(folder: Path) -> Path:
    """Write a model folder; the same weights every time."""
    config = T5Config(
        vocab_size=VOCAB_SIZE,
        d_model=48,
        d_kv=8,
        d_ff=80,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.empty(VOCAB_SIZE, config.d_model))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = float(name.endswith("norm.weight"))
            torch.nn.init.normal_(parameter, mean=mean, std=0.5 if parameter.dim() > 1 else 0.2)
    model.save_pretrained(folder)
    vocab = {PAD: 0, EOS: 1, UNKNOWN: 2} | {f"w{i}": i for i in range(3, VOCAB_SIZE)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, vocab[EOS])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN
    ).save_pretrained(folder)
    return folder
