"""Objects that never change and do not tell what they hold: each is known for as long as it is there."""

from __future__ import annotations

import os
import weakref
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_random: Final = os.urandom


class Stamps:
    """One for each object that was asked for, which nothing else ever has, in whatever fork of the process."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[object], int, str]] = {}

    def of(self, holder: object, held: object) -> str:
        """holder: can be referred to weakly, and has what is asked for, which cannot."""
        known = self._known.get(id(holder))
        if known is not None and known[0]() is holder and known[1] == id(held):
            return known[2]
        stamp, key, table = _random(8).hex(), id(holder), self._known
        self._known[key] = weakref.ref(holder, lambda _: table.pop(key, None)), id(held), stamp
        return stamp

    def holders(self) -> list[object]:
        """All that were asked for and are there."""
        return [holder for known, _, _ in list(self._known.values()) if (holder := known()) is not None]
