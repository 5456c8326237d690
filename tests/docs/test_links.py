"""Links within the project lead somewhere; nobody asks the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from guide import ROOT, anchors, guide, links

PAGES = [
    *guide(),
    *(ROOT / name for name in ("CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """The file of each relative link is there, and so is its heading."""
    broken = []
    for link in links(path.read_text(encoding="utf-8")):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)

    assert [] == broken


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    """A link to a heading that is not there, or no longer, counts as broken."""
    text = "# One `two`/three\n\n# Same\n\n# Same\n\n[a](x.md) `[b](y.md)` ![c](z.png#d)\n"

    assert ["x.md", "z.png#d"] == links(text)
    assert {"one-twothree", "same", "same-1"} == anchors(text)
