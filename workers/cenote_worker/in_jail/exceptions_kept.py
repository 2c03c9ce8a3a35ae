"""Exceptions as pickles that have what they came from, which their own leave out, and that are made without asking
their classes, which may want other arguments than an exception keeps. Their tracebacks stay behind: these lead to
frames, which nothing can make again.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any

from cenote_worker.in_jail.instances_kept import says_how_to_pickle
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_ORIGIN = ("__cause__", "__context__", "__suppress_context__")
"""In this order: setting a cause suppresses the context."""


def reduced_exception(value: BaseException) -> tuple[Any, ...] | None:
    """How to pickle one, as `reducer_override` gives it; None where its own way says all there is."""
    more = {key: told for key in _ORIGIN if (told := getattr(value, key))}
    more |= {key: told for key in _fields(type(value)) if (told := getattr(value, key)) is not None}
    cls, base = type(value), _built_in(type(value))
    if cls is base or says_how_to_pickle(cls):
        reduced: Any = value.__reduce_ex__(5)
        if not more or type(reduced) is not tuple or len(reduced) > 3:
            return None
        make, arguments, *state = reduced
        return make, arguments, (more, *state), None, None, filled
    _, arguments, *state = base.__reduce__(value)
    return made, (cls, base, *arguments), (more, *state), None, None, filled


def made(cls: Any, base: Any, *arguments: object) -> BaseException:
    """As the built-in class makes one that has these arguments."""
    value: BaseException = base.__new__(cls, *arguments)
    base.__init__(value, *arguments)
    return value


def filled(value: BaseException, told: tuple[Any, ...]) -> None:
    more, *state = told
    for one in state:
        value.__setstate__(one)
    for key, part in more.items():
        setattr(value, key, part)


def _built_in(cls: type) -> Any:
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _fields(cls: type) -> Iterator[str]:
    """What built-in ones have besides their arguments, such as the name that an attribute error is about. A group has
    nothing besides them."""
    for base in cls.__mro__:
        if base.__module__ == "builtins" and base is not BaseExceptionGroup:
            own = vars(base).items()
            yield from (
                key for key, field in own if type(field) is MemberDescriptorType and not key.startswith("__")
            )
