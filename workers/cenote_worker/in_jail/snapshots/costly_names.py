"""Names that have cost one cell after the other its snapshot.

Whoever goes through many small objects writes to the count of references of each, whatever else it does. The copy
that was made before such a cell is given up while it runs, and until then the cell has paid for it: back to back that
is for the fork, for the pages that it came to copy, and for the end of the copy, each time, and nothing is kept by
it. So behind two cells in a row that spoke of the same large container and lost their copies, some that speak of it
get none. Then one gets a copy again, to find out: the next ones are twice as many, or none if it was kept.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

MANY: Final = 100_000
"""Objects in a container that take a cell some milliseconds to copy the pages of, and nobody notices if it has fewer.
"""

MOST: Final = 16
"""Cells in a row without a copy, for which a crash costs the whole state."""

_LONGEST: Final = 20_000
"""Characters of a cell: looking for names in more would take longer than what it may spare."""

_CONTAINERS: Final = frozenset((list, tuple, dict, set, frozenset, deque))
_words = re.compile(r"[^\W\d]\w*").findall


@dataclass(slots=True)
class _Costly:
    """identity: of the container that the name has. lost: cells in a row. left: that get no copy."""

    identity: int
    lost: int = 0
    left: int = 0


class CostlyNames:
    """Of one namespace."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._costly: dict[str, _Costly] = {}

    @property
    def are_known(self) -> bool:
        """Whether there are any."""
        return bool(self._costly)

    def foresees(self, code: str) -> bool:
        """Whether the copy made before this cell would be given up again. To be asked once of each cell."""
        foreseen = False
        for name in self._known(code):
            costly = self._costly[name]
            foreseen = foreseen or costly.left > 0
            costly.left = max(costly.left - 1, 0)
        return foreseen

    def ran(self, code: str, *, lost: bool) -> None:
        """A cell that had a copy. lost: it was given up while the cell ran."""
        if not lost:
            for name in self._known(code):
                del self._costly[name]
        elif len(code) <= _LONGEST:
            for name in dict.fromkeys(_words(code)):
                value = self._namespace.get(name)
                if type(value) in _CONTAINERS and len(value) >= MANY:  # type: ignore[arg-type]
                    self._note(name, id(value))

    def _note(self, name: str, identity: int) -> None:
        costly = self._costly.get(name)
        if costly is None or costly.identity != identity:
            costly = self._costly[name] = _Costly(identity)
        costly.lost += 1
        costly.left = min(1 << (costly.lost - 1), MOST) if costly.lost > 1 else 0

    def _known(self, code: str) -> list[str]:
        """Those of the noted names that a cell speaks of, and that have the same container still."""
        if not self._costly or len(code) > _LONGEST:
            return []
        words = self._costly.keys() & set(_words(code))
        return [name for name in words if id(self._namespace.get(name)) == self._costly[name].identity]
