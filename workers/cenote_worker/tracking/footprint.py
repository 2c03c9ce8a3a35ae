"""Whether a step has certainly changed nothing but what names are bound to.

A trace says what a plan has to know. Here more is asked: the state behind such a step is taken to be the one before
and these bindings, and nobody looks again. So whatever is not known to leave nothing behind counts as leaving
something: other libraries than a few, other builtins than those that only compute and print, code that imports
anything or sets an attribute.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import StepTrace, hidden, key_of, kind_of
from cenote_worker.tracking.facts import Facts

__builtins__ = BUILTINS

_LIBRARIES: Final = frozenset(
    ("", "__main__", "builtins", "collections", "datetime", "json", "math", "numpy", "operator", "pandas", "re",
     "statistics", "string")
)  # fmt: skip
"""Of which objects may be in reach: what they keep of a computation is nothing but a cache, or is among HIDDEN."""

_BUILTINS: Final = frozenset(
    (
        "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr", "complex", "dict",
        "divmod", "enumerate", "filter", "float", "format", "frozenset", "hasattr", "hex", "int", "isinstance",
        "issubclass", "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow", "print", "range",
        "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "reply", "show",
        "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError",
        "LookupError", "NameError", "NotImplementedError", "OverflowError", "RuntimeError", "StopIteration",
        "TypeError", "ValueError", "ZeroDivisionError", "type",
    )
)  # fmt: skip
"""Those that compute or print. Not `id`: a value that comes back is another object."""

_present = vars(builtins)

_STATES: Final = frozenset(
    map(hidden, ("environ", "cwd", "sys.path", "warnings", "logging", "locale", "pandas", "numpy"))
)
"""May be read: those of which all is known. A decimal context has flags besides, and pyplot figures."""


def bound_only(
    trace: StepTrace, facts: Facts, libraries: Collection[str], names: Collection[str]
) -> frozenset[str] | None:
    """The names that a step has written, if that is all that it has done; None if it may have done more.

    facts, libraries: of its code and all that this could reach. names: of the namespace. What the names are bound to
    may have been changed in place.
    """
    if trace.opaque or trace.unrepeatable or trace.modules or not _is_harmless(facts, libraries, names):
        return None
    if any(kind_of(each) != "name" for each in trace.writes):
        return None
    if any(kind_of(each) in ("hidden", "module") and each not in _STATES for each in trace.reads):
        return None
    return frozenset(map(key_of, trace.writes))


def _is_harmless(facts: Facts, libraries: Collection[str], names: Collection[str]) -> bool:
    if facts.imports or facts.sets or facts.star:
        return False
    return (
        not any(word in _present and word not in _BUILTINS and word not in names for word in facts.loads)
        and _LIBRARIES.issuperset(libraries)
        and not any(word.startswith("_") for word in facts.attributes)
    )
