"""Token ids in, whole characters out: the first filter behind an engine.

What an id stands for is the tokenizer's business and comes in as `decode`; nothing here knows a
tokenizer, a model or a clock.

Theory of operation. Ids cannot be decoded one by one: a character may be spread over several
tokens, and many decoders treat the first token unlike the rest (it loses its leading space). So
two short lists of ids are kept:

    context   ids whose text is out; decoded again only to tell what follows them
    held      ids whose text still ends in U+FFFD, the sign of an unfinished character

and the text of the held ids is what `decode(context + held)` adds to `decode(context)`. It is the
idea of the two offsets in the streaming decode of Hugging Face's text-generation-inference. There
the window grows for as long as its text ends in U+FFFD; here it does not: a token has at least
one byte and a character at most four, so what the next few tokens leave unfinished stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

#: Ids held back at most, and ids of context kept behind held ones. Three of each are needed: as
#: many as bytes may follow the first of a character, be it unfinished or cut in two by the
#: window's edge.
MAX_HELD_IDS = 4


class Detokenizer:
    """Incremental decoding with constant work per token.

    `decode` must be a pure function of the ids and leave special tokens out; an id that decodes
    to nothing is taken to be absent.

    Promise: all pushes and the flush, joined, equal `decode(all ids)`, whatever the ids, for
    byte-level, WordPiece, Metaspace and end-of-word decoders. With byte fallback (tokens such as
    `<0xE4>`) they do if every run of byte tokens is valid UTF-8 and spells no U+FFFD. Such a
    decoder turns an invalid run into U+FFFD as a whole, with the characters before the fault;
    those are out by then and stay. So each byte of an invalid run gives its part of a character
    or one U+FFFD (unless the run spells U+FFFD itself), and the text around it is always exact.

    With ids `before`, the text goes on from theirs: it is what all ids add to it, as a space that
    the first word of a text would lose.

    At most `MAX_HELD_IDS` ids are held back, and never more than a dozen decoded at once; behind
    ids `before` it may be two dozen.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._context_text = ""
        self._held: list[int] = []
        self._held_text = ""
        if before:
            self._set_context(self._whole_end(before[-2 * MAX_HELD_IDS :]))

    def _whole_end(self, ids: Sequence[int]) -> list[int]:
        """As many as there are from where no character is cut: byte tokens would spoil a run."""
        ends = (list(ids[start:]) for start in range(len(ids)))
        return next((end for end in ends if REPLACEMENT not in self._decode(end)), list(ids))

    def push(self, token_id: int) -> str:
        """Take the next id; returns the text that is certain now, often none."""
        self._held.append(token_id)
        text = self._decode_held()
        if text == self._held_text and self._is_silent(token_id):
            self._held.pop()
            return ""
        settled = ""
        if text.endswith(REPLACEMENT) and len(self._held) > MAX_HELD_IDS:
            settled, text = self._give_up_oldest(text)
        if text.endswith(REPLACEMENT):
            self._held_text = text
            return settled
        self._set_context(self._held)
        self._held, self._held_text = [], ""
        return settled + text

    def flush(self) -> str:
        """The held text, finished or not; an id pushed later begins a new text."""
        text = self._held_text
        self._context, self._context_text = [], ""
        self._held, self._held_text = [], ""
        return text

    def _is_silent(self, token_id: int) -> bool:
        # Twice, since a lone token may be a space that is stripped as if it began the text.
        return not self._decode([token_id, token_id])

    def _set_context(self, ids: list[int]) -> None:
        self._context, self._context_text = ids, self._decode(ids)
        if not self._context_text:
            # A lone space again: only behind another one does it show.
            self._context = ids * 2
            self._context_text = self._decode(self._context)

    def _decode_held(self) -> str:
        before, text = self._context_text, self._decode(self._context + self._held)
        # An unfinished character at the end of the context may have been finished since.
        settled = before[:-1] if before.endswith(REPLACEMENT) else before
        if text.startswith(settled):
            return text[len(before) :]
        # A run of byte tokens reaches from the context into the held ids and is not valid as a
        # whole, or not yet, so that all of it is U+FFFD: the held ids must speak for themselves.
        return self._decode(self._held)

    def _give_up_oldest(self, text: str) -> tuple[str, str]:
        """Move the oldest held id to the context; returns its share of `text`, and the rest."""
        self._set_context([*self._context, self._held.pop(0)][-MAX_HELD_IDS:])
        rest = self._decode_held()
        if text.endswith(rest):
            return text[: len(text) - len(rest)], rest
        return REPLACEMENT, rest  # it was a byte token, without which the run is valid
