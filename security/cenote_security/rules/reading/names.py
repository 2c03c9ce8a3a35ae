"""Sets of names, written as running text."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The words of the text."""
    return frozenset(text.split())
