"""Reads Markdown as far as the tests of the guide need it: headings, links, blocks of code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n$")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code; `not_run` is the reason that stands before one that tests cannot run."""

    path: Path
    line: int
    language: str
    code: str
    not_run: str

    @property
    def is_fragment(self) -> bool:
        """It is a part of a program that stands elsewhere."""
        return self.not_run.startswith("a fragment")

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
        reason = _NOT_RUN.search(before)
        line = before.count("\n") + 1
        yield Block(path, line, match[1], match[2], reason[1] if reason else "")


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
