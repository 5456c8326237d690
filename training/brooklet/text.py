"""Small helpers for writing the themes' texts compactly."""

from __future__ import annotations


def words(block: str) -> list[str]:
    """Split a block of words at its spaces."""
    return block.split()


def phrases(block: str) -> list[str]:
    """Split a block of phrases at its bars; line breaks count as spaces."""
    return [" ".join(phrase.split()) for phrase in block.split("|")]


def with_article(noun: str) -> str:
    """Put 'a' or 'an' before a noun."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def listed(items: list[str]) -> str:
    """Join items as a comma-separated sentence."""
    return ", ".join(items) + "."
