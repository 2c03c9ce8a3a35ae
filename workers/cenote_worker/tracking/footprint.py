"""Whether a step has certainly changed nothing but what names are bound to, and files of the working directory.

A trace says what a plan has to know. Here more is asked: the state behind such a step is taken to be the one before
and these bindings, and nobody looks again. So whatever is not known to leave nothing behind counts as leaving
something: other libraries than a few, other builtins than those that only compute and print, code that imports
anything or sets an attribute.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import LIBRARIES, StepTrace, hidden, key_of, kind_of, module
from cenote_worker.tracking import computing
from cenote_worker.tracking.facts import Facts
from cenote_worker.tracking.hidden import EVENT_LOOP, IN_MEMORY

__builtins__ = BUILTINS

_TOOLS: Final = frozenset(
    (
        "",
        "__main__",
        "builtins",
        "collections",
        "datetime",
        "json",
        "math",
        "operator",
        "re",
        "statistics",
        "string",
    )
)
"""Of which modules and functions may be in reach: they have nothing to be set, and keep nothing but caches. They may
be imported, too: what was there before is only bound then, and where a module is new no binding is enough.
"""

_LIBRARIES: Final = _TOOLS | {"numpy", "pandas", "pathlib"}
_IMPORTS: Final = _LIBRARIES - {"", "__main__", "builtins"}
"""Of which objects may be: what their methods change is they themselves, or among HIDDEN, or files."""

_OF_PANDAS: Final = "pandas"
_SHARING_INDEXES: Final = ("0.", "1.", "2.")
"""Versions of it that give one index to several frames. One in which it is replaced by an equal one is equal still,
and nobody sees that a name which is set on it from now on is no longer the others' as well.
"""

_BUILTINS: Final = frozenset(
    (
        "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr", "complex", "dict",
        "divmod", "enumerate", "filter", "float", "format", "frozenset", "hasattr", "hex", "int", "isinstance",
        "issubclass", "iter", "len", "list", "map", "max", "min", "next", "oct", "open", "ord", "pow", "print",
        "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "reply", "show",
        "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError",
        "LookupError", "NameError", "NotImplementedError", "OverflowError", "RuntimeError", "StopIteration",
        "TypeError", "ValueError", "ZeroDivisionError", "type",
    )
)  # fmt: skip
"""Those that compute or print, and `open`: what it has done is seen. Not `id`: a value that comes back is another
object.
"""

_present = vars(builtins)
_import = builtins.__import__

_SETTINGS: Final = ("pandas", "numpy", "numpy.ma", "numpy.polynomial", IN_MEMORY)

_STATES: Final = frozenset(
    map(
        hidden,
        ("environ", "cwd", "sys.path", "warnings", "logging", "locale", "process", EVENT_LOOP, *_SETTINGS),
    )
) | {LIBRARIES, module("warnings"), module("signal")}
"""May be read: those of which all is known. A decimal context has flags besides, and pyplot figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What the code of a step could get at. libraries: it has objects of these. tools: and modules or functions.

    A function is `library:name`. only_here: see `FileWatch`.
    """

    facts: Facts
    libraries: frozenset[str]
    tools: frozenset[str]
    only_here: bool


def bound_only(trace: StepTrace, reach: Reach, names: Collection[str]) -> frozenset[str] | None:
    """The names that a step has written, if that and files are all that it has done; None if it may have done more.

    names: of the namespace. What is bound to the written ones may be what was before, changed in place. Files are
    those of the working directory, which is kept by itself.
    """
    if trace.opaque or trace.unrepeatable or trace.modules or not _is_harmless(reach, names):
        return None
    if not reach.only_here or any(kind_of(each) not in ("name", "file") for each in trace.writes):
        return None
    if any(kind_of(each) in ("hidden", "module") and each not in _STATES for each in trace.reads):
        return None
    return frozenset(key_of(each) for each in trace.writes if kind_of(each) == "name")


def _is_harmless(reach: Reach, names: Collection[str]) -> bool:
    facts = reach.facts
    if facts.sets or facts.star or not (facts.imports <= _IMPORTS and builtins.__import__ is _import):
        return False
    return (
        reach.libraries <= _LIBRARIES
        and not (_OF_PANDAS in reach.libraries and _shares_indexes())
        and all(_is_harmless_tool(tool, facts) for tool in reach.tools)
        and not any(word in _present and word not in _BUILTINS and word not in names for word in facts.loads)
        and not any(word.startswith("_") for word in facts.attributes)
    )


def _shares_indexes() -> bool:
    return str(getattr(sys.modules.get(_OF_PANDAS), "__version__", "")).startswith(_SHARING_INDEXES)


def _is_harmless_tool(tool: str, facts: Facts) -> bool:
    """Of numpy and pandas only what is known to compute: a module's functions by the words of the code, others by
    their own names.
    """
    library, _, function = tool.partition(":")
    if library in _TOOLS:
        return True
    return computing.only_computes(
        library, (function,) if function else facts.attributes, by_name=bool(function)
    )
