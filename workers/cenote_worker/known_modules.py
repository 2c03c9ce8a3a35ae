"""Names of modules that are imported, remembered without touching each of them.

Going through the names writes to every one (its count of references). Behind a zygote's preload they lie on six
hundred pages, which would become each worker's own, and after a fork of it be copied again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import takewhile
from typing import Final, Self

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules


def _is_being_imported(module: object) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


_FIRST: Final = frozenset(name for name, module in _modules.items() if not _is_being_imported(module))
"""What was imported before this module: in a zygote, all that it has preloaded. All other names come behind these:
a module whose import is over is put there once more.
"""


class KnownModules:
    """A set of names, which grows."""

    def __init__(self, names: Iterable[str] = (), first: frozenset[str] = frozenset()) -> None:
        """first: some more of them, in a set that many may share."""
        self._first = first
        self._others = set(names)

    @classmethod
    def imported(cls) -> Self:
        """All that there are."""
        late = set(takewhile(lambda name: name not in _FIRST, reversed(_modules)))
        if len(_FIRST) + len(late) >= len(_modules):
            return cls(late, _FIRST)
        return cls(_modules)  # one of the first was imported once more, and others before that

    def add(self, names: Iterable[str]) -> None:
        self._others.update(names)

    def unknown(self) -> set[str]:
        """Names of modules that are imported and not among these."""
        return _modules.keys() - self._first - self._others
