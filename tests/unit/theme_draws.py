"""What the tests of the corpus draw from its themes."""

from __future__ import annotations

import random
import re

from training.brooklet.exchange import Exchange, Facts, Theme


def drawn(theme: Theme, count: int = 200, facts: Facts | None = None) -> list[Exchange]:
    """So many exchanges of a theme, the same each time."""
    rng = random.Random(theme.__name__)
    return [theme(rng, {"assistant": "Brooklet", **(facts or {})}) for _ in range(count)]


def numbers_in(text: str) -> list[int]:
    """Every number of a text, in turn."""
    return [int(number) for number in re.findall(r"\d+", text)]
