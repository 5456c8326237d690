"""Text of a model, or a server, on a terminal: what would control it is shown as signs."""

from __future__ import annotations

import sys

#: Unicode has a picture for each C0 control; DEL and the C1 controls share one sign.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_HARMLESS = _PICTURES | dict.fromkeys(range(0x7F, 0xA0), 0xFFFD)


def harmless(text: str) -> str:
    return text.translate(_HARMLESS)


def on_stdout(text: str) -> str:
    """The text as it may go to standard output: harmless on a terminal, else as it is."""
    return harmless(text) if is_terminal() else text


def is_terminal() -> bool:
    """Whether people look at standard output; it may be closed."""
    return sys.stdout is not None and sys.stdout.isatty()
