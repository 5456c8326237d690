"""The tokenizer of a GGUF file: as Transformers makes it, once, and nothing that could do harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from streamwell.core.errors import LoadError
from streamwell.core.types import Message
from streamwell.models.resolve import resolve
from streamwell.text import gguf_tokenizer
from streamwell.text.prompt import PromptEncoder

pytestmark = pytest.mark.slow

TEXTS = ["hello", "hello  world", "héllo 12", "\n\n"]
LETTERS = [*"helowrd", "he", "ll", "hell", "hello"]
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
Make = Callable[..., Path]


def sentencepiece() -> dict[str, Any]:
    """A vocabulary as Llama 2 has it: scores instead of merges, and a token for each byte."""
    words = ["▁", *LETTERS, "▁hello"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *words]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)]
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))]
    return {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores}


def bytes_bpe() -> dict[str, Any]:
    """A vocabulary as GPT-2 has it: bytes in visible letters, and merges."""
    letters = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 256))]
    letters += [chr(256 + i) for i in range(256 - len(letters))]
    tokens = ["<unk>", "<s>", "</s>", *letters, "he", "ll", "hell", "12"]
    types = [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3)
    merges = ["h e", "l l", "he ll", "1 2"]
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
    }


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Writes a file with a vocabulary, and the least of a model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write(vocabulary: dict[str, Any], architecture: str = "llama") -> Path:
        file = tmp_path / "a.gguf"
        writer = gguf.GGUFWriter(file, architecture)
        writer.add_context_length(64)
        writer.add_embedding_length(8)
        writer.add_block_count(1)
        writer.add_feed_forward_length(8)
        writer.add_head_count(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model(vocabulary["model"])
        writer.add_token_list(vocabulary["tokens"])
        writer.add_token_types(vocabulary["token_type"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_chat_template("{{ messages[0]['content'] }}")
        optional = {
            "pre": writer.add_tokenizer_pre,
            "add_space_prefix": writer.add_add_space_prefix,
            "merges": writer.add_token_merges,
            "scores": writer.add_token_scores,
        }
        for name in optional.keys() & vocabulary.keys():
            optional[name](vocabulary[name])
        writer.add_tensor("token_embd.weight", np.zeros((2, 8), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file

    return write


@pytest.mark.parametrize("vocabulary", [sentencepiece, bytes_bpe])
def test_texts_are_encoded_as_transformers_does(
    make: Make, vocabulary: Callable[[], dict[str, Any]]
) -> None:
    """With the special tokens that the file wants around them; and decoded back.

    It is made once: the second time it is there.
    """
    file = make(vocabulary())
    reference = PreTrainedTokenizerFast.from_pretrained(file.parent, gguf_file=file.name)
    folder = resolve(str(file))

    encoder = PromptEncoder.load(folder)
    (folder / "model.gguf").unlink()  # so that nothing could be made again
    again = PromptEncoder.load(folder)

    for text in TEXTS:
        ids = encoder.encode_text(text)
        assert reference.encode(text) == ids == again.encode_text(text)
        assert reference.decode(ids, skip_special_tokens=True) == encoder.decode(ids)
    assert encoder.has_chat_template
    assert encoder.encode_chat([Message("user", "hello")])


def pieces(file: Path, text: str) -> list[str]:
    """How a text is cut up, the token before it included."""
    folder = resolve(str(file))
    encoder = PromptEncoder.load(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return list(tokenizer.convert_ids_to_tokens(encoder.encode_text(text)))


def test_a_space_comes_before_every_text_of_sentencepiece(make: Make) -> None:
    """Also behind special tokens, as in `tokenizer.json` of Llama 2, and as llama.cpp has it."""
    expected = ["<s>", "<s>", "▁hello", "</s>", "▁hello"]

    assert expected == pieces(make(sentencepiece()), "<s>hello</s>hello")


def test_a_file_may_want_no_space(make: Make) -> None:
    """Then none is put before a text, and none taken from an answer."""
    file = make(sentencepiece() | {"add_space_prefix": False})

    assert ["<s>", "hello", "▁hello"] == pieces(file, "hello hello")
    encoder = PromptEncoder.load(resolve(str(file)))
    assert " hello" == encoder.decode(encoder.encode_text(" hello"))


def test_special_tokens_need_not_be_spelled_in_bytes(make: Make) -> None:
    """DeepSeek's have bars that no byte stands for; each has the id that the file gives it."""
    vocabulary = bytes_bpe()
    bos, user = "<｜begin｜>", "<｜User｜>"
    tokens = ["<unk>", bos, user, *vocabulary["tokens"][3:]]
    file = make(vocabulary | {"tokens": tokens, "pre": "llama-bpe"})

    assert [bos, user, "hell", "o"] == pieces(file, f"{user}hello")
    assert len(tokens) == PromptEncoder.load(resolve(str(file))).vocab_size


def test_a_word_of_llama_3_that_is_a_token_is_one(make: Make) -> None:
    """Though no merges lead to it; and a text begins with `<s>` though the file does not say so."""
    vocabulary = bytes_bpe()
    tokens, types = [*vocabulary["tokens"], "hello"], [*vocabulary["token_type"], NORMAL]
    longer = vocabulary | {"tokens": tokens, "token_type": types}

    assert ["<s>", "hello"] == pieces(make(longer | {"pre": "llama-bpe"}), "hello")
    assert ["hell", "o"] == pieces(make(longer), "hello")


def test_phi_3_takes_the_space_behind_its_tokens(make: Make) -> None:
    """Its template writes line breaks there that its model never saw."""
    vocabulary = sentencepiece()
    tokens, types = [*vocabulary["tokens"], "<|user|>"], [*vocabulary["token_type"], CONTROL]
    longer = vocabulary | {"tokens": tokens, "token_type": types, "scores": [0.0] * len(tokens)}

    assert ["<s>", "<|user|>", "▁hello"] == pieces(make(longer, "phi3"), "<|user|>\nhello")


@pytest.mark.parametrize("vocabulary", [sentencepiece, bytes_bpe])
def test_what_ends_an_answer_is_no_text(
    make: Make, vocabulary: Callable[[], dict[str, Any]]
) -> None:
    """Files of Gemma and of ChatML models say that it is a token like others; llama.cpp knows."""
    plain = vocabulary()
    tokens = [*plain["tokens"], "<|im_end|>"]
    longer = plain | {"tokens": tokens, "token_type": [*plain["token_type"], NORMAL]}
    if "scores" in plain:
        longer["scores"] = [*plain["scores"], 0.0]
    folder = resolve(str(make(longer)))
    encoder = PromptEncoder.load(folder)
    end = len(tokens) - 1

    assert [2, end] == json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    assert "hello" == encoder.decode([*encoder.encode_text("hello"), end]).strip()
    assert end == encoder.encode_text("hello<|im_end|>")[-1]


@dataclass
class Warnings:
    """A logger that keeps what it is told."""

    ways: list[object] = field(default_factory=list)

    def warning(self, _event: str, **values: object) -> None:
        self.ways.append(values["way"])


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("smollm", ["1", "2", "1", "2", "!", "Ċ"]),
        ("exaone4", ["12", "12", "!", "Ċ"]),
        ("glm4", ["12", "1", "2", "!Ċ"]),
        ("chatglm-bpe", ["12", "1", "2", "!Ċ"]),
        ("hunyuan", ["1", "2", "1", "2", "!Ċ"]),
        ("seed-coder", ["1", "2", "1", "2", "!", "Ċ"]),
    ],
)
def test_ways_that_transformers_does_not_know_are_llama_cpps(
    make: Make, monkeypatch: pytest.MonkeyPatch, way: str, expected: list[str]
) -> None:
    """How many digits stand together, and whether a line break stands with what is before it."""
    warnings, plain = Warnings(), bytes_bpe()
    monkeypatch.setattr(gguf_tokenizer, "log", warnings)
    longer = plain | {
        "tokens": [*plain["tokens"], "!Ċ"],
        "token_type": [*plain["token_type"], NORMAL],
        "merges": [*plain["merges"], "! Ċ"],
        "pre": way,
    }

    assert expected == pieces(make(longer), "1212!\n")
    assert [] == warnings.ways


def test_an_unknown_way_is_warned_of(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken for GPT-2's, as Transformers does; the log names it."""
    warnings = Warnings()
    monkeypatch.setattr(gguf_tokenizer, "log", warnings)
    PromptEncoder.load(resolve(str(make(bytes_bpe() | {"pre": "nonesuch"}))))

    assert ["nonesuch"] == warnings.ways


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"merges": None}, "it has neither merges nor scores"),
        ({"model": "nonesuch"}, "no tokenizer can be made from .*nonesuch"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, "it has a token twice"),
        ({"token_type": [1, 1]}, "it has 2 token_type for"),
        ({"merges": ["zz zz"]}, "no tokenizer can be made from"),
    ],
)
def test_what_makes_no_tokenizer_is_refused(make: Make, changes: dict[str, Any], says: str) -> None:
    """With the reason; the folder has none then."""
    vocabulary = bytes_bpe() | changes
    folder = resolve(str(make({name: v for name, v in vocabulary.items() if v is not None})))

    with pytest.raises(LoadError, match=says):
        PromptEncoder.load(folder)
    assert not (folder / "tokenizer.json").exists()
