"""Tables for people, and for pipes: what is in the first column can be copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamwell.cli.harmless import harmless, is_terminal

#: In a pipe no line is broken: nobody knows how wide it is.
_PIPE_WIDTH = 10_000

Cell = str | Text


def print_table(names: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "") -> None:
    """Print it; cells are shown as they are, but for what would control the terminal.

    Args:
        names: of the columns.
        rows: as many cells as there are columns, each; the first is never broken or cut.
        title: above it; empty for none.
    """
    table = Table(title=title or None)
    for index, name in enumerate(names):
        table.add_column(name, no_wrap=not index, overflow="fold")
    for row in rows:
        # whatever looks like markup in them is none
        table.add_row(*(Text(harmless(cell)) if isinstance(cell, str) else cell for cell in row))
    Console(width=None if is_terminal() else _PIPE_WIDTH).print(table)
