"""Ids into text by tokenizers that are Python code, made fit for streaming.

They decode whole texts well. Of a part of one, some leave out what a stream has to see: the space
at its end, or the bytes of a character that is not whole yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Tokens that are looked at for one that says itself and no more: some tokenizers have none.
_MAX_TRIED = 5000
#: A character of several bytes, the last of which means nothing by itself.
_SAMPLE = "é"

Decode = Callable[[Sequence[int]], str]


def slow_decode(tokenizer: PreTrainedTokenizerBase) -> Decode:
    """What a `Detokenizer` needs: special tokens left out, unfinished characters as U+FFFD.

    Raises:
        ValueError: this tokenizer cannot say that a character is unfinished.
    """
    if type(tokenizer).__name__ == "ByT5Tokenizer":
        return _decode_bytes(tokenizer)

    decode = plain_decode(tokenizer)
    ids = tokenizer.encode(_SAMPLE, add_special_tokens=False)
    if len(ids) > 1 and decode(ids).strip() == _SAMPLE and not decode(ids[-1:]):
        raise ValueError("it leaves out characters that are not whole yet")
    return _keeping_last_space(decode, tokenizer.get_vocab())


def plain_decode(tokenizer: PreTrainedTokenizerBase) -> Decode:
    """The tokenizer's own `decode`, without special tokens, and with nothing tidied up."""

    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    return decode


def _decode_bytes(tokenizer: PreTrainedTokenizerBase) -> Decode:
    """ByT5's ids are bytes; its own `decode` skips those that make no whole character."""
    special = frozenset(tokenizer.all_special_ids)
    pieces = {
        token_id: b"" if token_id in special else token.content.encode()
        for token_id, token in tokenizer.added_tokens_decoder.items()
    }
    pieces = {tokenizer.offset + byte: bytes([byte]) for byte in range(256)} | pieces
    return lambda ids: b"".join(pieces.get(i, b"") for i in ids).decode(errors="replace")


def _keeping_last_space(decode: Decode, vocab: Mapping[str, int]) -> Decode:
    """The same function for a tokenizer that strips its text, as Marian's does.

    Its words would run together when they come one by one; with a token behind it that says itself
    and no more, a space stays.
    """
    for token, token_id in islice(vocab.items(), _MAX_TRIED):
        if token.isalnum() and decode([token_id, token_id]) == 2 * token:
            return lambda ids: decode([*ids, token_id]).removesuffix(token)
    return decode
