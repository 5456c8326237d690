"""`docs/decisions/README.md`: the decisions by their numbers."""

from __future__ import annotations

from tools.reference import NOTICE, ROOT

INTRO = """\
# Decisions

Choices that a newcomer would question, each with its reason, and what it was measured by. A later
one may take back an earlier one, and says so."""


def decisions_page() -> str:
    """A list of the titles."""
    files = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = [file.read_text(encoding="utf-8").partition("\n")[0] for file in files]
    lines = [
        f"- [{title.lstrip('# ')}]({file.name})" for title, file in zip(titles, files, strict=True)
    ]
    return "\n\n".join((INTRO, NOTICE, "\n".join(lines))) + "\n"
