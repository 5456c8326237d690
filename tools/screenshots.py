"""Takes the pictures of the guide: the chat page in two colours, and a session in the terminal.

    python tools/screenshots.py

The server, the model and the browser are real; the browser is driven as in `tests/web`. Answers
are the model's own, so another brooklet makes other pictures.
"""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("web", "e2e")]

from browser import Page, opened_browser  # noqa: E402 - lies among the tests
from harness import ServerProcess  # noqa: E402

ON_THE_PAGE = ("What is 27 + 15?", "Tell me a story.")
IN_THE_TERMINAL = ("Hello! What can you do?", "What day comes after Monday?", "What is 12 + 30?")
WIDTH, HEIGHT, COLUMNS = 1280, 800, 88
MAX_BYTES = 150_000
SILENCE_S = 60.0
#: The last answer has ended, and the line below it says what is left of the context.
_IDLE = (
    "!document.querySelector('[aria-busy=true]')"
    " && [...document.querySelectorAll('.speed')].at(-1)?.textContent.endsWith('left')"
)
#: What terminals obey, and pictures do not.
_CONTROLS = re.compile(r"\x1b\[[?>=0-9;]*[A-LN-Za-ln-z]|\x1b[=>]|\r|\x07")


def main() -> None:
    """All of them, into `docs/images`."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, closing(ServerProcess(Path(place))) as server:
        server.wait_until_ready()
        (IMAGES / "terminal.svg").write_text(_terminal(server.url), encoding="utf-8")
        with opened_browser() as browser:
            _take_page(Page(browser.new_page()), server.url)


def _take_page(page: Page, url: str) -> None:
    """The chat page after a conversation, in both colours."""
    page.resize(WIDTH, HEIGHT)
    page.open(f"{url}/")
    for number, question in enumerate(ON_THE_PAGE, 1):
        page.ask(question)
        page.sees(f"document.querySelectorAll('.answer').length == {number} && {_IDLE}")
    for theme in ("light", "dark"):
        page.tab.emulate_media(color_scheme=theme)
        _save(IMAGES / f"page-{theme}.png", page.tab.screenshot())


def _save(path: Path, picture: bytes) -> None:
    if len(picture) > MAX_BYTES:
        raise SystemExit(f"{path.name} has {len(picture)} bytes; {MAX_BYTES} is the limit")
    path.write_bytes(picture)


def _terminal(url: str) -> str:
    """A session of `streamwell chat` as an SVG that asks no host for a font."""
    said = _session([sys.executable, "-m", "streamwell", "chat", "--url", url], IN_THE_TERMINAL)
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text("$ streamwell chat", style="bold"))
    for line in _CONTROLS.sub("", said).strip().splitlines():
        text = Text.from_ansi(line)
        text.stylize("bold cyan" if line.startswith("> ") else "")
        console.print(text)
    svg = console.export_svg(title="streamwell chat", theme=MONOKAI)
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)


def _session(command: Sequence[str], lines: Sequence[str]) -> str:
    """What a program writes to a terminal where somebody types these lines, each at a prompt."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "dumb", "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(theirs)
        said = _until_prompt(ours)
        for line in lines:
            os.write(ours, f"{line}\n".encode())
            said += _until_prompt(ours)
        process.terminate()
    os.close(ours)
    return said.rpartition("\n")[0]


def _until_prompt(terminal: int) -> str:
    """Raises `TimeoutError` if the program is silent for too long."""
    said, decoder = "", codecs.getincrementaldecoder("utf-8")()
    while not f"\n{_CONTROLS.sub('', said)}".endswith("\n> "):
        if not select.select([terminal], [], [], SILENCE_S)[0]:
            raise TimeoutError(f"no prompt came after {said!r}")
        said += decoder.decode(os.read(terminal, 4096))
    return said


if __name__ == "__main__":
    main()
