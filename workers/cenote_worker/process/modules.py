"""Names of imported modules, remembered without touching each of them.

Iterating over the names writes to every one (its reference count). After a zygote's preload they are on six hundred
pages, which would become private to each worker, and be copied again after its forks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Final, Self

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules


def _is_being_imported(module: object) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _First:
    """The modules imported first. All other names come after these in `sys.modules`: a module is inserted again at
    the end of its import.
    """

    def __init__(self) -> None:
        self.look_again()

    def look_again(self) -> None:
        self.names = frozenset(name for name, module in _modules.items() if not _is_being_imported(module))
        self.last = tuple(islice((name for name in reversed(_modules) if name in self.names), 8))
        """The last ones, in reverse. While their order is the same, none of the first was imported again."""


_FIRST: Final = _First()


def settle() -> None:
    """Call this in a zygote after its imports: its forks then know these modules without iterating over them."""
    _FIRST.look_again()


class KnownModules:
    """A set of names, which grows."""

    def __init__(self, names: Iterable[str] = (), *, first: bool = False) -> None:
        """first: include the modules imported first."""
        self._first = first
        self._others = set(names)

    @classmethod
    def imported(cls) -> Self:
        """The names of all imported modules."""
        return cls(_behind_the_first(), first=True)

    def add(self, names: Iterable[str]) -> None:
        self._others.update(names)

    def unknown(self) -> set[str]:
        """Names of imported modules that are not in this set."""
        return (_behind_the_first() if self._first else set(_modules)) - self._others


def _behind_the_first() -> set[str]:
    found, names = set[str](), reversed(_modules)
    try:
        for name in names:
            if name in _FIRST.names:
                if (name, *islice(names, len(_FIRST.last) - 1)) == _FIRST.last:
                    return found
                break
            found.add(name)
    except RuntimeError:  # a thread is importing something
        pass
    return _modules.keys() - _FIRST.names
