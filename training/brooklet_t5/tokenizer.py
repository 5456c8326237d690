"""The tokenizer: a byte-level BPE learned from the corpus, which ends every text as T5's do."""

from __future__ import annotations

from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from training.brooklet_t5.corpus import example

PAD, END = SPECIAL_TOKENS = ("<pad>", "</s>")
VOCABULARY_SIZE = 1024
MAX_INPUT = 512
SAMPLE_EXAMPLES = 40_000

# What merges may join. A digit is always the same token, and a word with a capital the same tokens,
# whether a space, a bracket or a quotation mark stands before it: names and numbers are copied from
# texts into JSON. Other words take the space before them; so do marks, which also take the space
# between them and such a digit or name.
NAME = r"\p{Lu}\p{L}*"
MARKS = r"[^\s\p{L}\p{N}]+"
WORD = r" ?(?!\p{Lu})\p{L}+"
SPACED_MARKS = rf" ?{MARKS}(?: {MARKS})*(?: (?=[\p{{Lu}}\p{{N}}]))?"
PIECE = rf"{NAME}|\p{{N}}|{WORD}|{SPACED_MARKS}|\s+(?!\S)|\s+"


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Learn the merges from a sample of the corpus; the same seed gives the same tokenizer."""
    rng = Random(f"tokenizer-{seed}")
    drawn = (example(rng) for _ in range(SAMPLE_EXAMPLES))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        # All 256 bytes, so that any Unicode text survives the round trip.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text for item in drawn for text in (item.source, item.target))
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"$A {END}",
        pair=f"$A {END} $B {END}",
        special_tokens=[(END, bpe.token_to_id(END))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        model_max_length=MAX_INPUT,
        clean_up_tokenization_spaces=False,
    )
