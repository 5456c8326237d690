"""Tables of commands: on a terminal and in a pipe."""

from __future__ import annotations

import sys

import pytest

from streamwell.cli.tables import print_table

RUN_ID = "run-" + 32 * "a"


def test_a_narrow_terminal_shows_ids_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are there to be copied; all else is broken, and nothing is cut."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(("run", "text"), [(RUN_ID, " ".join("lorem" for _ in range(9)))])

    shown = capsys.readouterr().out
    assert RUN_ID in shown
    assert 9 == shown.count("lorem")


def test_a_pipe_gets_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    """However long it is."""
    print_table(("run", "text"), [(RUN_ID, 300 * "x")])

    assert any(RUN_ID in line and 300 * "x" in line for line in capsys.readouterr().out.split("\n"))


def test_cells_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes are shown as signs, and markup as it is."""
    print_table(("model",), [("a\x1b[31m\x9b",), ("[red]b[/red]",)])

    shown = capsys.readouterr().out
    assert "a␛[31m�" in shown
    assert "[red]b[/red]" in shown
