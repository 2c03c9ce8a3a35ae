"""Exceptions as pickles that have what they came from, which their own leave out. Their tracebacks stay behind: these
lead to frames, which nothing can make again.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_ORIGIN = ("__cause__", "__context__", "__suppress_context__")
"""In this order: setting a cause suppresses the context."""


def reduced_exception(value: BaseException) -> tuple[Any, ...] | None:
    """How to pickle one, as `reducer_override` gives it; None where its own way says all there is."""
    more = {key: told for key in _ORIGIN if (told := getattr(value, key))}
    more |= {key: told for key in _fields(type(value)) if (told := getattr(value, key)) is not None}
    reduced: Any = value.__reduce_ex__(5)
    if type(reduced) is not tuple or len(reduced) > 3:
        return None
    make, arguments, *state = reduced
    if make is type(value) and (base := _built_in(make)) is not None:
        return made, (base, make, arguments), (more, *state), None, None, filled
    return (make, arguments, (more, *state), None, None, filled) if more else None


def made(base: type[BaseException], cls: type[BaseException], arguments: tuple[object, ...]) -> BaseException:
    """Without the class's own code, which may want other arguments than it has passed on."""
    return base.__new__(cls, *arguments)


def _built_in(cls: type[BaseException]) -> type[BaseException] | None:
    """The built-in base of a class that has an `__init__` or a `__new__` of its own, and no word of its own about how
    it is pickled. None for others, and for groups, which are made of what they hold."""
    base = next(each for each in cls.__mro__ if each.__module__ == "builtins")
    own = any(getattr(cls, key) is not getattr(base, key) for key in ("__init__", "__new__"))
    if not own or cls.__reduce__ is not BaseException.__reduce__ or issubclass(cls, BaseExceptionGroup):
        return None
    return base


def filled(value: BaseException, told: tuple[Any, ...]) -> None:
    more, *state = told
    for one in state:
        value.__setstate__(one)
    for key, part in more.items():
        setattr(value, key, part)


def _fields(cls: type) -> Iterator[str]:
    """What built-in ones have besides their arguments, such as the name that an attribute error is about. A group has
    nothing besides them."""
    for base in cls.__mro__:
        if base.__module__ == "builtins" and base is not BaseExceptionGroup:
            own = vars(base).items()
            yield from (
                key for key, field in own if type(field) is MemberDescriptorType and not key.startswith("__")
            )
