"""One choice: token ids from the engine in, text out, and exactly one last word.

A choice outlives engines and servers: its `TextPipeline` knows all of its ids, so that any engine
can go on after them, and the ids in a log make the same pipeline again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from streamwell.core.errors import EngineDied
from streamwell.core.messages import AnswerPart, PartKind
from streamwell.core.ports import Engine
from streamwell.core.types import FinishReason, GenerateRequest
from streamwell.text.detokenizer import Detokenizer
from streamwell.text.response_parser import ResponseParser, joined
from streamwell.text.stop import StopFilter

Decode = Callable[[Sequence[int]], str]
#: Hears how many seconds a request waited in the engine.
Began = Callable[[float], None]


def _unheard(_queue_s: float) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that may be shown, never empty, and the ids since the last delta."""

    text: str
    token_ids: tuple[int, ...]
    #: See `RunEvent`.
    parts: tuple[AnswerPart, ...] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last word of a choice; `token_ids` are those that gave no text."""

    reason: FinishReason
    token_ids: tuple[int, ...]
    #: Prompt tokens that were in the engine's cache.
    num_cached_tokens: int = 0
    num_reasoning_tokens: int = 0
    #: What was held back of the answer; see `RunEvent`.
    parts: tuple[AnswerPart, ...] | None = None


class TextPipeline:
    """Ids to text and to parts of an answer: detokenizer, stop strings, response parser.

    Pure; a replay of the ids gives the same.
    """

    def __init__(
        self,
        decode: Decode,
        stop: tuple[str, ...],
        min_tokens: int,
        parser: ResponseParser | None = None,
        before: Sequence[int] = (),
    ) -> None:
        """Without a `parser` all text is content; with ids `before` it goes on from their text."""
        self._detokenizer = Detokenizer(decode, before)
        self._stop = StopFilter(stop)
        self._parser = parser
        self._parts: list[AnswerPart] = []
        self._num_reasoning_tokens = 0
        self._min_tokens = min_tokens
        #: All ids so far, for an engine that goes on after them.
        self.token_ids: list[int] = []
        self._num_cached_tokens = 0
        self._pending: list[int] = []

    @property
    def is_stopped(self) -> bool:
        return bool(self._stop.matched)

    def push(self, token_ids: Sequence[int], num_cached_tokens: int = 0) -> TextDelta | None:
        """Take tokens up to a stop string; those after it are discarded.

        How much of the prompt was cached counts before the first of them: later, the engine finds
        what the run itself has left there, or misses it.
        """
        if not self.token_ids:
            self._num_cached_tokens = max(self._num_cached_tokens, num_cached_tokens)
        text = ""
        for token_id in token_ids:
            if self.is_stopped:
                break
            self.token_ids.append(token_id)
            self._pending.append(token_id)
            shown = self._filter(self._detokenizer.push(token_id))
            text += shown
            self._parse(shown)
            if self._parser is not None:
                self._num_reasoning_tokens += self._parser.is_reasoning
        return self._delta(text)

    def flush(self) -> TextDelta | None:
        """What was held back; nothing after a stop string."""
        tail = "" if self.is_stopped else self._filter(self._detokenizer.flush())
        tail += self._stop.flush()
        self._parse(tail)
        return self._delta(tail)

    def finish(self, reason: FinishReason) -> Finished:
        """The last word, after `flush`; a stop with calls of tools is one for these."""
        parts = None
        if self._parser is not None:
            parts = joined(self._parser.flush()) or None
            if self._parser.num_calls and reason is FinishReason.STOP:
                reason = FinishReason.TOOL_CALLS
        ids = tuple(self._pending)
        return Finished(reason, ids, self._num_cached_tokens, self._num_reasoning_tokens, parts)

    def break_off(self, reason: FinishReason) -> Finished:
        """The last word of an answer that is cut; what was held back stays unsaid."""
        ids = tuple(self._pending)
        return Finished(reason, ids, self._num_cached_tokens, self._num_reasoning_tokens)

    def _parse(self, text: str) -> None:
        if self._parser is not None and text:
            self._parts += self._parser.push(text)

    def _filter(self, text: str) -> str:
        if len(self.token_ids) < self._min_tokens:
            return self._stop.let_pass(text)
        return self._stop.push(text)

    def _delta(self, text: str) -> TextDelta | None:
        if not text:
            return None
        parts = None if self._parser is None else joined(self._parts)
        if parts == (AnswerPart(PartKind.CONTENT, text),):
            parts = None
        delta = TextDelta(text, tuple(self._pending), parts)
        self._pending.clear()
        self._parts.clear()
        return delta


async def generate_text(
    engine: Engine, request: GenerateRequest, pipeline: TextPipeline, began: Began = _unheard
) -> AsyncGenerator[TextDelta | Finished, None]:
    """Yield deltas, then one `Finished`; closing it aborts the engine's request.

    Goes on after what the pipeline has seen; closed or failed, it can be called again. `began` is
    called when the engine has brought something, before it is shown.

    Raises:
        EngineError: the engine could not finish.
    """
    reason: FinishReason | None = None
    has_begun = False
    if pipeline.is_stopped or len(pipeline.token_ids) >= request.sampling.max_tokens:
        reason = FinishReason.LENGTH  # it ended, but for its last word
    else:
        request = replace(request, completion_ids=tuple(pipeline.token_ids))
        async with aclosing(engine.generate(request)) as deltas:
            async for delta in deltas:
                if not has_begun:
                    has_begun = True
                    began(delta.queue_s)
                reason = delta.finish_reason
                if text := pipeline.push(delta.token_ids, delta.num_cached_tokens):
                    yield text
                if pipeline.is_stopped:
                    break
    if reason is None and not pipeline.is_stopped:
        raise EngineDied
    # From here on nothing waits: whoever logs the rest of the text also logs the last word.
    if text := pipeline.flush():
        yield text
    yield pipeline.finish(FinishReason.STOP if pipeline.is_stopped else reason or FinishReason.STOP)
