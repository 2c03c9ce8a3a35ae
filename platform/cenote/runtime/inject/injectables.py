"""What can be put into a namespace: variables, functions, types."""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, Literal

from cenote_security.errors import UsageError

Effect = Literal["pure", "idempotent", "external"]
"""What calling a host function does to the world: nothing, the same thing each time, or anything."""


MAX_NAME = 1_000
"""Characters. Names travel in packets of a fixed size."""


def check_name(name: object, what: str) -> None:
    """Raises UsageError unless `name` can be the name of something in a namespace."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not _can_be_written(name):
        wrong = (
            "is a Python keyword"
            if isinstance(name, str) and name.isidentifier()
            else "is not a Python identifier"
        )
        raise UsageError(
            f"the {what}'s name must be an identifier of at most {MAX_NAME} characters; {str(name)[:100]!r} {wrong}"
        )
    spelled = unicodedata.normalize("NFKC", name)
    if spelled != name:  # the two can look the same, so they are shown in ASCII
        raise UsageError(
            f"Python reads the identifier {name[:100]!a} as {spelled[:100]!a}: no code finds a {what} "
            "under the first; give the second, as unicodedata.normalize('NFKC', name) does"
        )


def _check_by_value(by_value: bool, host: bool) -> None:
    if by_value and not host:
        raise UsageError("by_value is about results of what stays in the client: it needs host=True")


def _can_be_written(name: str) -> bool:
    """Whether code can say it; Python looks for keywords after it has normalised what is said."""
    return name.isidentifier() and not iskeyword(unicodedata.normalize("NFKC", name))


@dataclass(frozen=True, slots=True, init=False)
class Variable:
    """A value under a name.

    value: any object that cloudpickle can send, an `ObjectReference`, a `CaveAgent` (becomes a sub-agent), or,
        with `host=True`, any live object: it stays in the client and the jail gets a proxy for its public methods.
    by_value: as for a Function, of what these methods give.
    """

    name: str
    value: Any
    description: str | None
    host: bool
    by_value: bool

    def __init__(
        self,
        name: str,
        value: Any = None,
        description: str | None = None,
        *,
        host: bool = False,
        by_value: bool = False,
    ):
        check_name(name, "variable")
        _check_by_value(by_value, host)
        object.__setattr__(self, "by_value", by_value)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "host", host)


@dataclass(frozen=True, slots=True, init=False)
class Function:
    """A function under its own name.

    host: False sends it by value into the jail; True runs it in the client when the jail calls it.
    by_value: of a host function: objects of your own classes, and functions, that it gives go by value, and with them
        what their code mentions, such as a key among the globals of your module. By default they go as data: their
        fields, without methods, class attributes and private attributes.
    effect: what a call does to the world; re-execution never repeats an `external` one on its own.
    include_doc: whether a model sees the docstring.
    """

    func: Callable[..., Any]
    name: str
    description: str | None
    include_doc: bool
    host: bool
    effect: Effect
    by_value: bool

    def __init__(
        self,
        func: Callable[..., Any],
        description: str | None = None,
        include_doc: bool = True,
        *,
        host: bool = False,
        effect: Effect = "external",
        name: str | None = None,
        by_value: bool = False,
    ):
        if not callable(func):
            raise UsageError(f"a Function needs a callable, not {type(func).__name__}")
        name = name or getattr(func, "__name__", None) or type(func).__name__
        if name == "<lambda>":
            raise UsageError('a lambda has no name; give one: Function(f, name="double")')
        check_name(name, "function")
        if effect not in ("pure", "idempotent", "external"):
            raise UsageError(f"effect is pure, idempotent or external, not {effect!r}")
        _check_by_value(by_value, host)
        object.__setattr__(self, "by_value", by_value)
        object.__setattr__(self, "func", func)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "include_doc", include_doc)
        object.__setattr__(self, "host", host)
        object.__setattr__(self, "effect", effect)

    @property
    def is_async(self) -> bool:
        call = getattr(self.func, "__call__", None)  # noqa: B004  (an instance may have an async __call__)
        return inspect.iscoroutinefunction(self.func) or inspect.iscoroutinefunction(call)


@dataclass(frozen=True, slots=True, init=False)
class Type:
    """A class under its own name, by value.

    include_schema: whether a model sees its fields and methods. include_doc: and its docstring.
    """

    value: type
    name: str
    description: str | None
    include_schema: bool
    include_doc: bool

    def __init__(
        self,
        value: type,
        description: str | None = None,
        include_schema: bool = True,
        include_doc: bool = True,
    ):
        if not isinstance(value, type):
            raise UsageError(f"the value of a Type must be a class, not {type(value).__name__}")
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "name", value.__name__)
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "include_schema", include_schema)
        object.__setattr__(self, "include_doc", include_doc)


Injectable = Variable | Function | Type
