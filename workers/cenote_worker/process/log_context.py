"""What the lines of a log are about: a tenant, a runtime, a step. It goes along with the work over threads and tasks.

A thread that works for many, such as the one that watches all jails, carries out the work of each in the context that
its beginner had (`contextvars.copy_context`); tasks of an event loop have that of the code that made them anyway. A
trace goes the same way, since OpenTelemetry keeps its spans in the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

Fact = str | Callable[[], object]
"""A text, or what gives it when a line is written: a runtime's step changes while its jail lives."""

_NOTHING: Final[Mapping[str, Fact]] = MappingProxyType({})
_CONTEXT: Final = ContextVar("log_context", default=_NOTHING)

FIELDS: Final = ("tenant", "runtime", "step")
"""What an event can be about, from the record's `extra` or from `log_context`."""


@contextmanager
def log_context(**fields: Fact) -> Iterator[None]:
    """All events that are logged inside, in this context and in copies of it, are about these."""
    before = _CONTEXT.set({**_CONTEXT.get(), **fields})
    try:
        yield
    finally:
        _CONTEXT.reset(before)


def logged_about() -> dict[str, str]:
    """What an event of this context is about: texts by the names of FIELDS, without empty ones."""
    facts = {name: fact() if callable(fact) else fact for name, fact in _CONTEXT.get().items()}
    return {name: str(fact) for name, fact in facts.items() if fact}
