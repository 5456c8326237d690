"""The tokenizer: a byte-level BPE learned from the corpus, and the chat format around it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.brooklet.corpus import Message, conversation

PAD, TURN_START, TURN_END = SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY_SIZE = 1024
CONTEXT_LENGTH = 2048
SAMPLE_CONVERSATIONS = 12_000

# What merges may join. A digit, and a letter that stands alone, is always the same token, whatever
# surrounds it: counting, sums and spelling cannot be learned from tokens that hide their parts.
# A word takes the space before it, a mark also the one between it and such a digit or letter.
ALONE = r"(?:\p{N}|\p{L}(?!\p{L}))"
PIECE = rf" ?\p{{L}}{{2,}}|{ALONE}| ?[^\s\p{{L}}\p{{N}}]+(?: (?={ALONE}))?|\s+(?!\S)|\s+"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Learn the merges from a sample of the corpus; the same seed gives the same tokenizer."""
    rng = Random(f"tokenizer-{seed}")
    texts = (
        message["role"] + "\n" + message["content"]
        for _ in range(SAMPLE_CONVERSATIONS)
        for message in conversation(rng)
    )
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
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save a tokenizer under the class name that every release of Transformers knows."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    for name in ("is_local", "local_files_only"):  # traces of having been loaded from a folder
        settings.pop(name, None)
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    file.write_text(json.dumps(settings, indent=2) + "\n")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer saved before."""
    return PreTrainedTokenizerFast.from_pretrained(folder)


def encode_conversation(
    tokenizer: PreTrainedTokenizerFast, messages: list[Message]
) -> tuple[list[int], list[bool]]:
    """Encode like the chat template, and mark the tokens that the model has to predict."""
    token_ids: list[int] = []
    is_target: list[bool] = []
    for message in messages:
        spoken = message["role"] == "assistant"
        for text, target in (
            (f"{TURN_START}{message['role']}\n", False),
            (message["content"] + TURN_END, spoken),
            ("\n", False),
        ):
            piece = tokenizer.encode(text, add_special_tokens=False)
            token_ids += piece
            is_target += [target] * len(piece)
    return token_ids, is_target
