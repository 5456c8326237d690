"""Stop strings: text passes through until one of them appears.

The second filter behind an engine, after the detokenizer. It knows text only: no tokens, no finish
reasons, no clock.

Source of the method: Knuth, Morris and Pratt, "Fast pattern matching in strings" (1977); one
automaton per stop string, fed character by character. So the outcome cannot depend on how the text
was cut into pushes, and a push costs its own length times the number of stop strings.
"""

from __future__ import annotations


class StopFilter:
    """Releases text up to the first stop string; holds back only a tail that may become one.

    The first stop string is the one that is complete first; of several complete at the same
    character, the longest. It and all that follows it are never released.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        if "" in stops:
            raise ValueError("A stop string must not be empty.")
        self._automata = [_Automaton(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._held = ""
        #: The stop string that was found, if any.
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take more text; returns what is certain now, and nothing once a stop was found."""
        if not self._automata:
            return text
        if self.matched is not None:
            return ""
        ends = [(end, a.stop) for a in self._automata if (end := a.feed(text)) is not None]
        if ends:
            end, self.matched = min(ends, key=lambda found: found[0])  # the longest comes first
            return (self._held + text[:end])[: -len(self.matched)]
        text = self._held + text
        # what was let pass can be held back no more
        end = max(0, len(text) - max(a.num_matched for a in self._automata))
        self._held = text[end:]
        return text[:end]

    def let_pass(self, text: str) -> str:
        """Take text in which nothing stops; a stop string that begins in it may end later."""
        for automaton in self._automata:
            rest = text
            while (end := automaton.feed(rest)) is not None:
                rest = rest[end:]
        return text

    def flush(self) -> str:
        """The held tail, which became no stop string; ends the text."""
        if self.matched is not None:
            return ""
        tail, self._held = self._held, ""
        return tail


class _Automaton:
    """Knows how long a beginning of `stop` the text ends in."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0
        self._borders = _borders(stop)

    def feed(self, text: str) -> int | None:
        """Take more text; returns how much of it was needed to complete `stop`, if it is."""
        stop, borders, size = self.stop, self._borders, self.num_matched
        for position, char in enumerate(text, start=1):
            while size and stop[size] != char:
                size = borders[size - 1]
            if stop[size] == char:
                size += 1
            if size == len(stop):
                self.num_matched = borders[-1]
                return position
        self.num_matched = size
        return None


def _borders(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper suffix that begins `stop`."""
    borders = [0]
    for char in stop[1:]:
        size = borders[-1]
        while size and stop[size] != char:
            size = borders[size - 1]
        if stop[size] == char:
            size += 1
        borders.append(size)
    return borders
