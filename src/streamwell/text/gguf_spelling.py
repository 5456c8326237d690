"""A GGUF file's tokenizer as llama.cpp reads it, where Transformers makes another one of it.

The rules are those of llama.cpp's `llama-vocab.cpp`: the file has no other meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamwell.models.gguf_folder import LLAMA_3_WAYS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Kinds of tokens, as the file has them.
CONTROL, _USER_DEFINED = 3, 4
_GEMMA = "gemma"
#: Phi-3's special tokens that leave the white space behind them.
_PHI3_LEAVING = ("<unk>", "<s>", "<|endoftext|>")
_SPACE = "▁"
#: Ways to cut up text behind which a word that is a token needs no merges.
_WHOLE_WORDS = (*LLAMA_3_WAYS, "glm4")


def respelled(tokenizer: Tokenizer, architecture: str, parts: Mapping[str, Any]) -> Tokenizer:
    """The same tokenizer with the tokens of the file, and with spaces where llama.cpp has them.

    Args:
        tokenizer: what Transformers makes of the file.
        architecture: the model's, as the file names it.
        parts: what the file says of its tokenizer, in Transformers' names.
    """
    from tokenizers import Tokenizer

    made = json.loads(tokenizer.to_str())
    kind = parts.get("tokenizer_type")
    if kind == "gpt2" and "token_type" in parts:
        _take_tokens(made, parts["tokens"], parts["token_type"])
        # a word that is a token is one, though no merges lead to it
        made["model"]["ignore_merges"] = parts.get("pre_tokenizer_type") in _WHOLE_WORDS
    elif kind == "llama" and not architecture.startswith(_GEMMA):
        _put_spaces(made, is_first=parts.get("add_prefix_space", True))
    if kind == "llama" and architecture == "phi3":
        for token in made["added_tokens"]:
            token["rstrip"] = token["special"] and token["content"] not in _PHI3_LEAVING
    return Tokenizer.from_str(json.dumps(made))


def _take_tokens(made: dict[str, Any], tokens: list[str], types: list[int]) -> None:
    """All tokens under their own ids, also those that are not spelled in letters for bytes."""
    made["model"]["vocab"] = {token: token_id for token_id, token in enumerate(tokens)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    made["added_tokens"] = [
        {"id": token_id, "content": tokens[token_id], **plain, "special": kind == CONTROL}
        for token_id, kind in enumerate(types)
        if kind in (CONTROL, _USER_DEFINED)
    ]


def _put_spaces(made: dict[str, Any], *, is_first: bool) -> None:
    """SentencePiece's spaces are letters; mostly one comes before each text between specials."""
    prepend = [{"type": "Prepend", "prepend": _SPACE}] if is_first else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    made["normalizer"] = {"type": "Sequence", "normalizers": [*prepend, replace]}
    made["pre_tokenizer"] = None
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if is_first else []
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    steps = [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]
    made["decoder"] = {"type": "Sequence", "decoders": steps}
