"""Which classes an abstract class counts as its own: what the interpreter keeps of that, as lists."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Iterable
from typing import Any, Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.classes import module_of, qualname

__builtins__ = BUILTINS

ABSTRACT: Final = "_abc_impl"
"""The attribute by which a class is known to be one."""

_dump: Any = abc._get_dump  # type: ignore[attr-defined]
_subclasses = type.__dict__["__subclasses__"]
_token = abc.get_cache_token


def registered_with(cls: type) -> list[type]:
    """Those that were registered with it, or with a class derived from it: these count as well."""
    found, waiting = dict[int, type](), [cls]
    done = set[int]()
    while waiting:
        asked = waiting.pop()
        if id(asked) in done:
            continue
        done.add(id(asked))
        waiting.extend(_subclasses(asked))
        if ABSTRACT in type.__dict__["__dict__"].__get__(asked):
            found |= {id(each): each for each in _alive(_dump(asked)[0])}
    return _in_order(found.values())


def answers_of(cls: type) -> tuple[list[type], list[type]]:
    """Classes that it has found to be its own, and those that it has found not to be, and will say so again."""
    _, own, others, token = _dump(cls)
    return _in_order(_alive(own)), _in_order(_alive(others)) if token == _token() else []


def _alive(references: Iterable[weakref.ref[type]]) -> list[type]:
    return [cls for each in references if (cls := each()) is not None]


def _in_order(classes: Iterable[type]) -> list[type]:
    """One that does not hang on addresses, as that of a set of classes does."""
    return sorted(classes, key=lambda cls: (module_of(cls), qualname(cls)))
