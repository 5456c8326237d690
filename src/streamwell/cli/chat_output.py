"""How `streamwell chat` shows an answer: as it is in a pipe, as growing markdown on a terminal.

What a model says is no command to the terminal: see `harmless`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from markdown_it import MarkdownIt
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from streamwell.cli.harmless import harmless, on_stdout

_FENCES = ("```", "~~~")
#: Markdown without what would not be shown: tags, as in `vector<int>`, addresses of pictures, and
#: of references.
_PARSER = (
    MarkdownIt()
    .enable(["strikethrough", "table"])
    .disable(["html_block", "html_inline", "image", "reference"])
)


class AnswerWriter(Protocol):
    """Shows one answer; entered before its first text, left after its last."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def write(self, text: str) -> None: ...


def answer_writer(console: Console) -> AnswerWriter:
    """Markdown where it can be drawn again and again, else the text as it comes."""
    if not console.is_terminal or console.is_dumb_terminal:
        return _PlainWriter()
    return _MarkdownWriter(console)


class _PlainWriter:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is to be undone."""

    def write(self, text: str) -> None:
        print(on_stdout(text), end="", flush=True)


class _MarkdownWriter:
    """Blocks that are whole are drawn for good; the last one again, with every refresh."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, refresh_per_second=8)
        self._tail = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()
        if self._tail.strip():
            self._console.print(_markdown(self._tail))

    def write(self, text: str) -> None:
        whole, self._tail = split_whole(self._tail + harmless(text))
        # first, and at once: what is printed draws below it what was drawn there last
        self._live.update(self._drawn_tail(), refresh=bool(whole.strip()))
        if whole.strip():
            self._live.console.print(_markdown(whole))
            self._live.console.print()

    def _drawn_tail(self) -> Markdown | Text:
        """A block that is higher than the screen by its last lines only."""
        lines, height = self._tail.splitlines(), self._console.height - 2
        if len(lines) > height:
            return Text("\n".join(lines[-height:]))
        return _markdown(self._tail)


def _markdown(text: str) -> Markdown:
    """With the lines of the text, and with the addresses of links, for they can be copied."""
    markdown = Markdown("", hyperlinks=False)
    markdown.parsed = _PARSER.parse(text)
    for token in markdown.parsed:
        for part in token.children or ():
            if part.type == "softbreak":
                part.type = "hardbreak"
    return markdown


def split_whole(markdown: str) -> tuple[str, str]:
    """What no later text can change, and the rest: cut at the last empty line outside a fence."""
    fence, place, cut = "", 0, 0
    for line in markdown.splitlines(keepends=True):
        place += len(line)
        opener = line.lstrip()[:3]
        if fence:
            fence = "" if opener == fence else fence
        elif opener in _FENCES:
            fence = opener
        elif line == "\n":
            cut = place
    return markdown[:cut], markdown[cut:]
