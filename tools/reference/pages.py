"""The pages and who makes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.reference import ROOT
from tools.reference.api_page import api_page
from tools.reference.command_pages import commands_page, settings_page
from tools.reference.decisions_page import decisions_page

PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "docs" / "reference" / "settings.md": settings_page,
    ROOT / "docs" / "reference" / "commands.md": commands_page,
    ROOT / "docs" / "reference" / "api.md": api_page,
    ROOT / "docs" / "decisions" / "README.md": decisions_page,
}
