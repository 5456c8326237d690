"""What the user types in `streamwell chat`: lines, texts of several lines, words typed ahead."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from streamwell.settings import default_data_dir

_PROMPT, _MORE = "> ", ". "
_BLOCK, _CONTINUED = '"""', "\\"
_HISTORY_LINES = 1000


class ChatInput:
    """Reads what the user says; on a terminal with line editing and history."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._typed_ahead: deque[str] = deque()
        if self.is_terminal:
            _use_history(default_data_dir() / "chat_history")

    def read(self) -> str:
        r"""One text: a line, lines that end in `\`, or lines between `\"\"\"`.

        The last never begin with a slash: they are no command.

        Raises:
            EOFError: the input has ended.
            KeyboardInterrupt: the user pressed Ctrl-C.
        """
        line = self._line(_PROMPT)
        if line.strip().startswith(_BLOCK):
            return self._block(line.strip().removeprefix(_BLOCK))
        lines = [line]
        while lines[-1].endswith(_CONTINUED):
            lines[-1] = lines[-1].removesuffix(_CONTINUED)
            lines.append(self._more(""))
        return "\n".join(lines)

    def check_stop(self) -> None:
        """Look at what was typed while an answer comes; what is not `/stop` is kept for later.

        Raises:
            KeyboardInterrupt: it is `/stop`.
        """
        if not self.is_terminal or not select.select([sys.stdin], [], [], 0)[0]:
            return
        line = sys.stdin.readline().rstrip("\n")
        if line.strip() == "/stop":
            raise KeyboardInterrupt
        if line:
            self._typed_ahead.append(line)

    @contextlib.contextmanager
    def without_echo(self) -> Iterator[None]:
        """What is typed meanwhile is not shown: what is drawn anew takes back the lines it drew."""
        if not self.is_terminal or os.name != "posix":
            yield
            return
        import termios

        before = termios.tcgetattr(sys.stdin)
        changed = [*before]
        changed[3] &= ~termios.ECHO  # of the local modes
        termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    def _block(self, line: str) -> str:
        lines = [line]
        while not lines[-1].rstrip().endswith(_BLOCK):
            lines.append(self._more(_BLOCK))
        lines[-1] = lines[-1].rstrip().removesuffix(_BLOCK)
        text = "\n".join(lines).strip("\n")
        return f" {text}" if text.startswith("/") else text

    def _more(self, at_end: str) -> str:
        """Another line of a text; in a pipe, the end of the input is the text's end too."""
        try:
            return self._line(_MORE)
        except EOFError:
            if self.is_terminal:
                raise
            return at_end

    def _line(self, prompt: str) -> str:
        if self._typed_ahead:
            line = self._typed_ahead.popleft()
            print(f"{prompt}{line}")
            return line
        return input(prompt if self.is_terminal else "")


def _use_history(path: Path) -> None:
    """Give `input` line editing, and remember what was typed, readable by its owner only."""
    try:
        import readline
    except ImportError:  # Windows
        return
    import atexit

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        readline.read_history_file(path)
        readline.set_history_length(_HISTORY_LINES)
        atexit.register(_write_history, path)


def _write_history(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        readline.write_history_file(path)
