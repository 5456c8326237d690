"""`python -m tools.reference`: write all of them."""

from __future__ import annotations

from tools.reference.pages import PAGES

for path, make in PAGES.items():
    path.write_text(make(), encoding="utf-8")
