"""The tokenizer: a byte-level BPE learned from the corpus, and the chat format around it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.brooklet.corpus import Conversation, conversation, document

PAD, TURN_START, TURN_END = SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Marks that a client may see: decoding keeps them, and the response template finds them.
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
VOCABULARY_SIZE = 2048
CONTEXT_LENGTH = 4096
SAMPLE_CONVERSATIONS = 20_000

# What merges may join. A digit, and a letter that stands alone, is always the same token, whatever
# surrounds it: counting, sums and spelling cannot be learned from tokens that hide their parts.
# A word takes the space before it, a mark also the one between it and such a digit or letter.
ALONE = r"(?:\p{N}|\p{L}(?!\p{L}))"
PIECE = rf" ?\p{{L}}{{2,}}|{ALONE}| ?[^\s\p{{L}}\p{{N}}]+(?: (?={ALONE}))?|\s+(?!\S)|\s+"

# Where the assistant starts to speak and where a turn ends: the tokens between are to be learned.
SPEECH = re.compile(r"(?<=<\|im_start\|>assistant\n)(.*?<\|im_end\|>)", re.DOTALL)

CHAT_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text().rstrip("\n")

# How Transformers' response parser finds the parts of an answer.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": f"{TURN_START}assistant\n",
    "fields": {
        "content": {"close": TURN_END},
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Learn the merges from a sample of the corpus; the same seed gives the same tokenizer."""
    rng = Random(f"tokenizer-{seed}")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(MARKS),
        special_tokens=list(SPECIAL_TOKENS),
        # All 256 bytes, so that any Unicode text survives the round trip.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_sample(rng), trainer)
    bpe.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        response_template=RESPONSE_TEMPLATE,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def _sample(rng: Random) -> list[str]:
    """Texts to learn the merges from: what is said, documents, and descriptions of tools."""
    texts = [document(rng) for _ in range(SAMPLE_CONVERSATIONS // 20)]
    for _ in range(SAMPLE_CONVERSATIONS):
        talk = conversation(rng)
        texts += [json.dumps(tool, ensure_ascii=False) for tool in talk.tools[:1]]
        for message in talk.messages:
            texts.append(message["role"] + "\n" + message["content"])
            calls = message.get("tool_calls", [])
            texts += [json.dumps(call["function"], ensure_ascii=False) for call in calls]
    return texts


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


def render(tokenizer: PreTrainedTokenizerFast, talk: Conversation) -> str:
    """Write a conversation out as the chat template does; a thought precedes the last reply."""
    rendered: str
    if not talk.thought:
        return str(tokenizer.apply_chat_template(talk.messages, tools=talk.tools, tokenize=False))
    rendered = tokenizer.apply_chat_template(
        talk.messages[:-1],
        tools=talk.tools,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=True,
    )
    return f"{rendered}{talk.thought}</think>{talk.messages[-1]['content']}{TURN_END}\n"


def encode_conversation(
    tokenizer: PreTrainedTokenizerFast, talk: Conversation
) -> tuple[list[int], list[bool]]:
    """Encode like the chat template, and mark the tokens that the model has to predict."""
    pieces = SPEECH.split(render(tokenizer, talk))
    # The text splits into what is given and what is said, in turn. With a thought, only the
    # last turn was said with thinking on, so only that is to be learned.
    encoded = tokenizer(pieces, add_special_tokens=False)["input_ids"]
    token_ids: list[int] = []
    is_target: list[bool] = []
    last = len(pieces) - 2
    for index, piece in enumerate(encoded):
        said = index % 2 == 1 and (not talk.thought or index == last)
        token_ids += piece
        is_target += [said] * len(piece)
        if said and talk.thought:  # its mark is the template's
            is_target[-len(piece)] = False
    return token_ids, is_target
