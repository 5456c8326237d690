"""Reads Markdown as far as the tests of the guide need it: headings, links, blocks of code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (run by|stands in|saved as): (.+?) -->\n+$")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code, and what the comment before it says, if there is one.

    Attributes:
        run_by: The test that takes it from the page and runs it, where a page cannot be run.
        stands_in: The source that it is a part of; a test compares them.
        saved_as: The file that the blocks after it find it in.
    """

    path: Path
    line: int
    language: str
    code: str
    run_by: str = ""
    stands_in: str = ""
    saved_as: str = ""

    @property
    def is_of_its_page(self) -> bool:
        """It is run, or saved, with all others of the page."""
        return not (self.run_by or self.stands_in)

    @property
    def is_in_checkout(self) -> bool:
        """It is typed in the folder of the project."""
        return re.search(r"^(make |\.venv/bin/)", self.code, re.MULTILINE) is not None

    @property
    def serves(self) -> bool:
        """It is a command that starts a server, and no more."""
        words = self.code.replace("\\\n", " ").split()
        names = [word for word in words if "=" not in word or word.startswith("-")]
        is_single = len(self.code.replace("\\\n", " ").strip().splitlines()) == 1
        return is_single and names[:2] == ["streamwell", "serve"] and "&" not in names

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def guide() -> list[Path]:
    """What is read by those who use the server."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> Iterator[Block]:
    """All blocks of a file, in order."""
    text = path.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        mark = _MARK.search(before)
        told = {mark[1].replace(" ", "_"): mark[2]} if mark else {}
        yield Block(path, before.count("\n") + 1, match[1], match[2], **told)


def blocks_run_by(test: str) -> list[Block]:
    """The blocks of the guide that this test is to run, by its own file's name."""
    name = str(Path(test).relative_to(ROOT))
    return [block for path in guide() for block in blocks(path) if block.run_by == name]


def links(text: str) -> list[str]:
    """Targets of all links and pictures, those in code apart."""
    return _LINK.findall(_without_code(text))


def anchors(text: str) -> set[str]:
    """What links may have after a `#`: of each heading as GitHub and the site make it."""
    found: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain).strip().lower().replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]+`", "", _FENCE.sub("", text))
