"""Prompts in, token ids out: the tokenizer and chat template of a model folder.

What a server asks of a tokenizer happens here, through Transformers; the detokenizer only borrows
`PromptEncoder.decode`. No lengths are checked and no defaults filled in here, and code from
a model folder is never run unless it is trusted: the folder is looked at and its tokenizer tried
out first, and templates are rendered in a process that can do no harm.

Transformers is imported on the first load, since that takes a second. A folder with a
`tokenizer.json` needs no more than its tokenizer base class, which leaves torch alone;
`AutoTokenizer`, for all others, brings torch into the process.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from streamwell.core.errors import InvalidRequest, LoadError
from streamwell.core.messages import ChatOptions, Message, PartKind, refuse_surrogates
from streamwell.models.inspection import inspect_tokenizer
from streamwell.text.chat_template import HarmfulTemplate, TemplateRenderer
from streamwell.text.chat_variables import chat_variables, takes_tools
from streamwell.text.gguf_tokenizer import make_tokenizer
from streamwell.text.response_parser import ResponseParser
from streamwell.text.response_template import (
    ResponseTemplate,
    UnsupportedTemplate,
    parse_response_template,
)
from streamwell.text.slow_tokenizers import slow_decode
from streamwell.text.tokenizer_trial import tried_out
from streamwell.text.usual_marks import showing, usual_response_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = structlog.get_logger()

#: The largest templates of real models have 30,000.
_MAX_TEMPLATE_CHARS = 1 << 20
#: At the end of a prompt, those that may belong to the answer already.
_MAX_BEGUN_IDS = 256
_NO_OPTIONS = ChatOptions()
#: Most templates render this; some want roles to take turns, and the user to come last.
_SAMPLE = (Message("user", "Hello!"), Message("assistant", "Hi."), Message("user", "Bye."))


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
        #: For chats, and for chats with tools.
        self._templates = _chat_templates(tokenizer)
        special = {i: t.content for i, t in tokenizer.added_tokens_decoder.items() if t.special}
        self._response_template = _response_template(
            tokenizer, self._templates or (), special.values()
        )
        shown = self._response_template.shown if self._response_template else ()
        marks = {token_id: token for token_id, token in special.items() if token in shown}
        self._decode = showing(_decoder_of(tokenizer), marks)
        self._renderer = TemplateRenderer()
        self._control_tokens = self._find_control_tokens()
        #: One more than the largest id the tokenizer knows; a model may have more rows.
        self.vocab_size: int = 1 + max(tokenizer.get_vocab().values())

    @classmethod
    def load(cls, path: Path, *, trust_remote_code: bool = False) -> PromptEncoder:
        """Load from a local model folder, and try its chat template; the network is never asked.

        Raises:
            LoadError: the folder has no tokenizer that can be read, or one that could do harm.
        """
        inspect_tokenizer(path, trust_remote_code=trust_remote_code)
        make_tokenizer(path)
        try:
            encoder = cls(_load_tokenizer(path, trust_remote_code=trust_remote_code))
            encoder._try_template()
        except LoadError:
            raise
        except HarmfulTemplate as error:
            raise LoadError(f"{path}: {error}") from error
        except BaseException as error:  # Rust tokenizers raise no narrower type
            if not isinstance(error, Exception) and not _is_panic(error):
                raise
            raise LoadError(f"No tokenizer could be loaded from {path}: {error}") from error
        return encoder

    @property
    def has_chat_template(self) -> bool:
        return self._templates is not None

    def encode_chat(
        self, messages: Sequence[Message], options: ChatOptions = _NO_OPTIONS
    ) -> list[int]:
        """The ids of a conversation, up to where the assistant's answer begins.

        Only the template writes control tokens: a `<|im_end|>` in a message is plain text.

        Raises:
            InvalidRequest: there is no chat template, it knows no tools, it refuses these messages,
                or it takes too much time or room for them.
        """
        from transformers.utils.chat_template_utils import encode_marked_chat, mark_control_tokens

        if self._templates is None:
            message = "This model has no chat template; it takes plain prompts only."
            raise InvalidRequest(message, param="messages")
        if not messages:
            raise InvalidRequest("An empty conversation has no answer.", param="messages")
        template = self._templates[bool(options.tools)]
        if options.tools and not takes_tools(template):
            raise InvalidRequest("the chat template of this model takes no tools", param="tools")

        def mark(text: str) -> str:
            marked: str = mark_control_tokens(text, self._control_tokens)
            return marked

        messages = [self._without_marks(message) for message in messages]
        variables = chat_variables(messages, options, mark) | self._tokenizer.special_tokens_map
        text = self._renderer.render(template, variables)
        with _failures_refused("messages"):
            ids: list[int] = encode_marked_chat(self._tokenizer, text)
        return ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of a plain prompt, with the special tokens that the tokenizer itself adds.

        Special tokens written out in `text` are taken as such.

        Raises:
            InvalidRequest: the text is not valid Unicode.
        """
        refuse_surrogates(text, param="prompt")
        with _failures_refused("prompt"):
            ids: list[int] = self._tokenizer.encode(text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids as it is: without special tokens, and nothing tidied up."""
        return self._decode(ids)

    def answer_parser(
        self, prompt_ids: Sequence[int], kinds: Sequence[PartKind]
    ) -> ResponseParser | None:
        """What splits the answer to a prompt into these kinds of parts and content.

        `None` if the model's folder does not say how, or nothing is to be split off.
        """
        if self._response_template is None or not kinds:
            return None
        end: str = self._tokenizer.decode(
            list(prompt_ids[-_MAX_BEGUN_IDS:]), clean_up_tokenization_spaces=False
        )
        begun = self._response_template.answer_begun_in(end)
        return ResponseParser(self._response_template, kinds, begun)

    def _without_marks(self, message: Message) -> Message:
        """An answer that was kept as it was written, marks of special tokens and all."""
        template = self._response_template
        marks = template.shown if template and message.role == "assistant" else ()
        if template is None or not any(mark in message.content for mark in marks):
            return message
        parser = ResponseParser(template, (PartKind.REASONING,))
        parts = [*parser.push(message.content), *parser.flush()]
        said = "".join(part.text for part in parts if part.kind is PartKind.CONTENT)
        return replace(message, content=said)

    def close(self) -> None:
        """End the process that renders templates; it ends by itself, too, with the encoder."""
        self._renderer.close()

    def _find_control_tokens(self) -> re.Pattern[str]:
        """What must not be typed: special tokens, and others that only the template is to write."""
        named, literals = self._tokenizer.chat_control_tokens, ""
        if self._templates is not None and named is None:
            with suppress(InvalidRequest):  # it will be told to who wants to chat
                literals = "\0".join(map(self._renderer.literals, set(self._templates)))
        tokens = [
            token.content
            for token in self._tokenizer.added_tokens_decoder.values()
            if token.special
            or token.content in (named or ())
            or (token.content in literals and not token.content.isspace())
        ]
        longest_first = sorted(tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def _try_template(self) -> None:
        """Render a simple conversation; that it is refused is no reason not to serve plain prompts.

        Raises:
            HarmfulTemplate: it had to be stopped.
        """
        if self._templates is None:
            return
        try:
            self.encode_chat(_SAMPLE)
        except HarmfulTemplate:
            raise
        except InvalidRequest as error:
            log.warning("the chat template refuses a simple conversation", reason=str(error))


# While it is imported, Transformers puts another module in its own place. A thread that waits for
# another to import it would be given the first one, which has no classes.
_importing = threading.Lock()


def _load_tokenizer(path: Path, *, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    # Lengths are checked elsewhere; without this Transformers logs a warning of its own.
    options = {"local_files_only": True, "model_max_length": sys.maxsize}
    if (path / "tokenizer.json").is_file():
        with tried_out(path / "tokenizer.json"), _importing:
            from transformers import PreTrainedTokenizerFast  # which takes its time

        return PreTrainedTokenizerFast.from_pretrained(path, **options)
    with _importing:
        from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, **options)


def _chat_templates(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str] | None:
    """The template for chats, and that for chats with tools, which may be another."""
    named = tokenizer.chat_template
    if not named or (isinstance(named, dict) and "default" not in named):
        return None
    with_tools = [{"type": "function", "function": {"name": "any"}}]
    templates: tuple[str, str] = (
        tokenizer.get_chat_template(),
        tokenizer.get_chat_template(tools=with_tools),
    )
    if (size := max(map(len, templates))) > _MAX_TEMPLATE_CHARS:
        raise LoadError(f"the chat template has {size} characters, which is too large")
    return templates


def _response_template(
    tokenizer: PreTrainedTokenizerBase, chat_templates: Sequence[str], special: Collection[str]
) -> ResponseTemplate | None:
    """What the folder says of its answers, or else what its chat templates show of them."""
    source = getattr(tokenizer, "response_template", None)
    if not source:
        return usual_response_template("\0".join(chat_templates), special)
    try:
        return parse_response_template(source, unseen=special)
    except UnsupportedTemplate as error:
        log.warning("answers are not split: no such response template is served", reason=str(error))
        return None


def _decoder_of(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], str]:
    if tokenizer.is_fast:
        # It skips special tokens, tidies nothing up, and costs a third of the call around it.
        decode: Callable[[Sequence[int]], str] = tokenizer.backend_tokenizer.decode
        return decode
    return slow_decode(tokenizer)


@contextmanager
def _failures_refused(param: str) -> Iterator[None]:
    """What a tokenizer cannot encode is the caller's to know, and no reason to end a thread."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, ValueError) and not _is_panic(error):
            raise
        raise InvalidRequest(f"the tokenizer fails on this text: {error}", param) from error


def _is_panic(error: BaseException) -> bool:
    """Panics of Rust code have a type that cannot be imported, and that is no `Exception`."""
    return type(error).__name__ == "PanicException"
