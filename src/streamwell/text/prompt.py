"""Prompts in, token ids out: the tokenizer and chat template of a model folder.

All that Streamwell does with a tokenizer happens here, through Transformers; the detokenizer only
borrows `PromptEncoder.decode`. No lengths are checked and no defaults filled in here, and code from
a model folder is never run: templates are rendered in Jinja's immutable sandbox, and remote code is
refused.

Transformers is imported on the first load, since that takes a second. A folder with a
`tokenizer.json` needs no more than its tokenizer base class, which leaves torch alone;
`AutoTokenizer`, for all others, brings torch into the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamwell.core.errors import InvalidRequest, LoadError
from streamwell.core.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class PromptEncoder:
    """Turns conversations and texts into token ids, and ids into text.

    `load` and both `encode` methods block, for milliseconds to seconds: call them in a worker
    thread. `decode` takes microseconds and may run on the event loop meanwhile. Any number of
    threads may share one encoder, for nothing of it changes after `load`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        # The first call clears the truncation and padding that a folder may ask for. Done later,
        # beside another thread's call, tokenizers before 0.23 refuse it as "Already borrowed".
        tokenizer.encode("")
        self._tokenizer = tokenizer
        self._decode = _plain_decode(tokenizer)
        #: One more than the largest id the tokenizer knows; a model may have more rows.
        self.vocab_size: int = 1 + max(tokenizer.get_vocab().values())

    @classmethod
    def load(cls, path: Path) -> PromptEncoder:
        """Load from a local model folder; the network is never asked.

        Raises:
            LoadError: the folder has no tokenizer that can be read.
        """
        try:
            return cls(_load_tokenizer(path))
        except Exception as error:  # Rust tokenizers raise no narrower type
            raise LoadError(f"No tokenizer could be loaded from {path}: {error}") from error

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a conversation, up to where the assistant's answer begins.

        Only the template writes control tokens: a `<|im_end|>` in a message is plain text.

        Raises:
            InvalidRequest: there is no chat template, or it refuses these messages.
        """
        from jinja2 import TemplateError

        if not self.has_chat_template:
            message = "This model has no chat template; it takes plain prompts only."
            raise InvalidRequest(message, param="messages")
        for index, item in enumerate(messages):
            _refuse_surrogates(item.content, param=f"messages.{index}.content")
        try:
            ids: list[int] = self._tokenizer.apply_chat_template(
                [{"role": item.role, "content": item.content} for item in messages],
                add_generation_prompt=True,
                sanitize_control_tokens=True,
                return_dict=False,
            )
        except (TemplateError, ValueError) as error:
            raise InvalidRequest(str(error), param="messages") from error
        return ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of a plain prompt, with the special tokens that the tokenizer itself adds.

        Special tokens written out in `text` are taken as such.

        Raises:
            InvalidRequest: the text is not valid Unicode.
        """
        _refuse_surrogates(text, param="prompt")
        ids: list[int] = self._tokenizer.encode(text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids as it is: without special tokens, and nothing tidied up."""
        return self._decode(ids)


def _load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    if not path.is_dir():
        raise NotADirectoryError("there is no such folder")
    # Lengths are checked elsewhere; without this Transformers logs a warning of its own.
    options = {"local_files_only": True, "model_max_length": sys.maxsize}
    if (path / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(path, **options)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=False, **options)


def _plain_decode(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], str]:
    if tokenizer.is_fast:
        # It skips special tokens, tidies nothing up, and costs a third of the call around it.
        decode: Callable[[Sequence[int]], str] = tokenizer.backend_tokenizer.decode
        return decode
    return lambda ids: tokenizer.decode(
        list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def _refuse_surrogates(text: str, param: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("The text has half a surrogate pair in it.", param) from error
