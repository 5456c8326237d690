"""What a terminal does while `streamwell chat` shows an answer."""

from __future__ import annotations

import os
import pty
import termios

import pytest

from streamwell.cli.chat_input import ChatInput


def test_what_is_typed_leaves_no_mark_in_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it is shown, and as before after it, also if it was stopped."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as terminal, os.fdopen(master, "rb"):
        monkeypatch.setattr("sys.stdin", terminal)
        keys = ChatInput()
        keys.is_terminal = True
        before = termios.tcgetattr(terminal)
        within = []

        def stop() -> None:
            with keys.without_echo():
                within.append(termios.tcgetattr(terminal)[3])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stop()
        assert before[3] & termios.ECHO
        assert [before[3] & ~termios.ECHO] == within
        assert before == termios.tcgetattr(terminal)


def test_a_pipe_has_no_such_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is changed of what is no terminal."""
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with ChatInput().without_echo():
            assert not nothing.isatty()
