"""Names of modules that are imported, remembered without touching each of them.

Going through the names writes to every one (its count of references). Behind a zygote's preload they lie on six
hundred pages, which would become each worker's own, and after a fork of it be copied again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
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

_LAST_OF_FIRST: Final = tuple(islice((name for name in reversed(_modules) if name in _FIRST), 8))
"""Backwards. Where they stand like that, none of the first was imported again behind others."""


class KnownModules:
    """A set of names, which grows."""

    def __init__(self, names: Iterable[str] = (), *, first: bool = False) -> None:
        """first: the first ones as well."""
        self._first = first
        self._others = set(names)

    @classmethod
    def imported(cls) -> Self:
        """All that there are."""
        return cls(_behind_the_first(), first=True)

    def add(self, names: Iterable[str]) -> None:
        self._others.update(names)

    def unknown(self) -> set[str]:
        """Names of modules that are imported and not among these."""
        return (_behind_the_first() if self._first else set(_modules)) - self._others


def _behind_the_first() -> set[str]:
    found, names = set[str](), reversed(_modules)
    try:
        for name in names:
            if name in _FIRST:
                if (name, *islice(names, len(_LAST_OF_FIRST) - 1)) == _LAST_OF_FIRST:
                    return found
                break
            found.add(name)
    except RuntimeError:  # a thread is importing something
        pass
    return _modules.keys() - _FIRST
