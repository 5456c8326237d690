"""Streams of text from Transformers' own `model.generate`, for anybody's own asyncio application.

Nothing here belongs to the server. In a route of FastAPI this is all:

    return StreamingResponse(stream(model, tokenizer, **inputs, max_new_tokens=64))

Theory of operation. `generate` runs in a thread of its own and hands each step's ids to `put`.
There they become whole characters, and `loop.call_soon_threadsafe` carries these to the reader's
event loop, so nobody polls and the loop never waits. What a slow reader has not taken is joined:
it gets one longer text and not many old ones.

A reader that leaves makes the next `put` raise. This unwinds `generate` between two steps, as any
error would. A `StoppingCriteria` acts in the same place, but the caller must remember to pass it,
and it is not asked before the prompt has been computed; `put` is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from transformers.generation.streamers import BaseStreamer

from streamwell.text.detokenizer import Detokenizer
from streamwell.text.slow_tokenizers import plain_decode, slow_decode

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class ReadersLeft(Exception):
    """Nobody reads any more; raised from `put` to end `generate`."""


class AsyncStreamer(BaseStreamer):  # type: ignore[misc] # Transformers is not followed
    """The text of one `generate`, as it comes; every generation needs a streamer of its own.

    Make it in a coroutine, `start` it, and read it with `async for`. A batch has one stream per
    row, in `rows`: mostly each row answers somebody else, and rows end apart.

    Texts are whole characters and never repeated. Joined they are the row's
    `decode(ids, skip_special_tokens=True)`, without the prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, num_rows: int = 1) -> None:
        """Raises RuntimeError or ValueError.

        No event loop is running here, or the tokenizer hides characters that are not whole yet.
        """
        is_fast = getattr(tokenizer, "is_fast", True)  # a processor's is
        decode = plain_decode(tokenizer) if is_fast else slow_decode(tokenizer)
        #: The texts of each row, in the order of the batch.
        self.rows = tuple(RowStream(decode) for _ in range(num_rows))
        self._loop = asyncio.get_running_loop()
        self._eos_ids: frozenset[int] = frozenset()
        self._is_prompt_seen = False
        self._is_over = False

    def start(self, model: PreTrainedModel, **options: Any) -> threading.Thread:  # noqa: ANN401
        """Run `generate` in a new thread, and return that."""
        thread = threading.Thread(
            target=self.generate, args=(model,), kwargs=options, name="generate"
        )
        thread.start()
        return thread

    def generate(self, model: PreTrainedModel, **options: Any) -> None:  # noqa: ANN401
        """Run `model.generate(**options, streamer=self)` here; blocks until it has ended.

        What it raises goes to the readers. In a batch a row ends with an end-of-sequence token of
        the model; a caller of `model.generate` itself has all rows end with the last one.
        """
        try:
            self._eos_ids = _eos_ids(model, options)
            model.generate(**options, streamer=self)
        except ReadersLeft:
            self.end()
        except BaseException as error:  # noqa: BLE001 - the rim of a thread
            self.fail(error)
        else:
            self.end()

    def put(self, value: torch.Tensor) -> None:
        """Called by `generate`: first with the prompts, then with the ids of each step.

        Args:
            value: ids of shape (rows, length) the first time, then (rows,); for a single row any
                shape, since assisted generation brings several at once.

        Raises:
            ReadersLeft: every row has ended or lost its reader.
            ValueError: there are more or fewer rows than the streamer has.
        """
        if self._is_over:
            raise RuntimeError("a streamer is for one generation; make another for the next")
        if not any(row.is_wanted for row in self.rows):
            raise ReadersLeft
        if not self._is_prompt_seen:
            if value.shape[0] != len(self.rows):
                raise ValueError(f"the batch has {value.shape[0]} rows, not {len(self.rows)}")
            self._is_prompt_seen = True
            return
        for row, ids in zip(self.rows, value.reshape(len(self.rows), -1).tolist(), strict=True):
            if row.is_wanted and ((text := row.push(ids, self._eos_ids)) or row.has_ended):
                self._tell(row, text)

    def end(self) -> None:
        """Called by `generate` at its end."""
        self.fail(None)

    def fail(self, error: BaseException | None) -> None:
        """End all streams with this error; for who calls `model.generate` himself, and it raised.

        Streams that have ended stay as they are.
        """
        self._is_over = True
        with suppress(ReadersLeft):
            for row in self.rows:
                if row.is_wanted:
                    self._tell(row, row.finish(), error)

    def __aiter__(self) -> AsyncGenerator[str]:
        if len(self.rows) > 1:
            raise TypeError("this streamer has several rows: read each of its `rows`")
        return aiter(self.rows[0])

    def _tell(self, row: RowStream, text: str, error: BaseException | None = None) -> None:
        try:
            self._loop.call_soon_threadsafe(row.take, text, row.has_ended, error)
        except RuntimeError:  # the event loop has ended, and all readers with it
            raise ReadersLeft from None


class RowStream:
    """The text of one row; to be read once, with `async for`.

    `push` and `finish` run in the thread of `generate`, all else on the reader's event loop.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._detokenizer = Detokenizer(decode)
        #: The last id has come; what follows is padding.
        self.has_ended = False
        self._has_reader_left = False
        # what the reader has not taken yet
        self._text = ""
        self._error: BaseException | None = None
        self._is_complete = False
        self._news = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        return not self.has_ended and not self._has_reader_left

    def push(self, ids: Sequence[int], eos_ids: Container[int]) -> str:
        """Take the ids of a step; returns the text that is certain now."""
        text = ""
        for token_id in ids:
            text += self._detokenizer.push(token_id)
            if token_id in eos_ids:
                return text + self.finish()
        return text

    def finish(self) -> str:
        """No more ids come; returns the text that has been held back."""
        self.has_ended = True
        return self._detokenizer.flush()

    def take(self, text: str, is_complete: bool, error: BaseException | None) -> None:  # noqa: FBT001 - the loop passes no names
        """Keep a text for the reader, and wake it."""
        self._text += text
        self._is_complete, self._error = is_complete, error
        self._news.set()

    def close(self) -> None:
        """Nobody will read on; for a row that is never read, since reading ends with this."""
        self._has_reader_left = True

    async def __aiter__(self) -> AsyncGenerator[str]:
        try:
            while self._text or not self._is_complete:
                await self._news.wait()
                self._news.clear()
                text, self._text = self._text, ""
                if text:
                    yield text
            if self._error is not None:
                raise self._error
        finally:
            self.close()


async def stream(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    **options: Any,  # noqa: ANN401 - whatever `generate` takes
) -> AsyncGenerator[str]:
    """The text of `model.generate(**options)`, for one prompt.

    Generation begins with the first text that is asked for, and ends, at the next token, when the
    reader leaves. It has a thread of its own: an application bounds by itself how many there are.

    Raises what `generate` raises, after the text before.
    """
    streamer = AsyncStreamer(tokenizer)
    streamer.start(model, **options)
    async with aclosing(aiter(streamer)) as texts:
        async for text in texts:
            yield text


def _eos_ids(model: PreTrainedModel, options: Mapping[str, Any]) -> frozenset[int]:
    """The ids that end a row, by the same precedence as in `generate`."""
    config = options.get("generation_config") or model.generation_config
    of_config = config.eos_token_id
    if of_config is None:
        of_config = model.generation_config.eos_token_id
    ids = options.get("eos_token_id", of_config)
    return frozenset([] if ids is None else [ids] if isinstance(ids, int) else map(int, ids))
