"""Lists of a tenant's entries, a page at a time, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


def page(entries: Callable[[int], Sequence[Entry]], limit: int, most: int) -> tuple[Sequence[Entry], str]:
    """Some of them, and the name behind which the next page begins; empty at the end.

    entries: gives so many at the most. limit: how many are wanted, 0 for as many as there may be, which is `most`.
    """
    limit = min(limit or most, most)
    found = entries(limit)
    return found, found[-1].name if len(found) == limit else ""
