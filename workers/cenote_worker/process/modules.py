"""Names of modules that are imported, remembered without touching each of them.

Going through the names writes to every one (its count of references). Behind a zygote's preload they lie on six
hundred pages, which would become each worker's own, and after a fork of it be copied again.
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
    """What was imported at first. All other names come behind these: a module whose import is over is put there once
    more.
    """

    def __init__(self) -> None:
        self.look_again()

    def look_again(self) -> None:
        self.names = frozenset(name for name, module in _modules.items() if not _is_being_imported(module))
        self.last = tuple(islice((name for name in reversed(_modules) if name in self.names), 8))
        """Backwards. Where they stand like that, none of the first was imported again behind others."""


_FIRST: Final = _First()


def settle() -> None:
    """In a zygote, when it has imported all: what its forks find in it is known to each of them, without a look."""
    _FIRST.look_again()


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
            if name in _FIRST.names:
                if (name, *islice(names, len(_FIRST.last) - 1)) == _FIRST.last:
                    return found
                break
            found.add(name)
    except RuntimeError:  # a thread is importing something
        pass
    return _modules.keys() - _FIRST.names
