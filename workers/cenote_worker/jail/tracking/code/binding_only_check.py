"""Whether a step has certainly changed nothing but bindings of names, and files of the working directory.

A trace says what a plan has to know. This check is stricter: the state after such a step is taken to be the state
before it and these bindings, and is not checked again. So anything not known to leave nothing behind counts as
leaving something: all but a few libraries, all builtins but those that only compute and print, code that imports
anything or sets an attribute.

Functions and classes of numpy and pandas that only compute are listed by name. Others of these libraries set how they
print or compute, draw numbers, keep their arguments or look at the process. So an unlisted name is not known to be
harmless.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from cenote_worker.execution.trace import LIBRARIES, StepTrace, hidden, key_of, kind_of, module
from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.process_state.ambient_state import EVENT_LOOP, IN_MEMORY
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_NUMPY: Final = frozenset(
    (
        "abs", "all", "allclose", "amax", "amin", "any", "append", "apply_along_axis", "arange", "argmax", "argmin",
        "argpartition", "argsort", "argwhere", "around", "array", "array_equal", "array_split", "asanyarray",
        "asarray", "ascontiguousarray", "astype", "atleast_1d", "atleast_2d", "average", "bincount", "bool",
        "broadcast_to", "choose", "clip", "column_stack", "compress", "concatenate", "convolve", "copy", "corrcoef",
        "correlate", "count_nonzero", "cov", "cross", "cumprod", "cumsum", "delete", "diag", "diagonal", "diff",
        "digitize", "dot", "dstack", "dtype", "e", "ediff1d", "einsum", "empty", "empty_like", "expand_dims", "eye",
        "finfo", "flatnonzero", "flip", "fliplr", "flipud", "full", "full_like", "geomspace", "gradient",
        "histogram", "hsplit", "hstack", "identity", "iinfo", "imag", "in1d", "inf", "inner", "insert", "interp",
        "intersect1d", "isclose", "iscomplex", "isin", "isreal", "isscalar", "kron", "lexsort", "linalg",
        "linspace", "logspace", "max", "mean", "median", "meshgrid", "min", "moveaxis", "nan", "nan_to_num",
        "nanargmax", "nanargmin", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
        "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "newaxis", "nonzero", "ones",
        "ones_like", "outer", "pad", "partition", "percentile", "pi", "polyfit", "polyval", "prod", "ptp",
        "quantile", "ravel", "real", "repeat", "reshape", "resize", "roll", "rot90", "round", "searchsorted",
        "select", "setdiff1d", "shape", "size", "sort", "split", "squeeze", "stack", "std", "sum", "swapaxes",
        "take", "take_along_axis", "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril", "triu",
        "union1d", "unique", "unwrap", "vander", "var", "vdot", "vsplit", "vstack", "where", "zeros", "zeros_like",
    )
)  # fmt: skip

_PANDAS: Final = frozenset(
    (
        "Categorical", "CategoricalDtype", "DataFrame", "DatetimeIndex", "Index", "Interval", "MultiIndex", "NA",
        "NaT", "NamedAgg", "RangeIndex", "Series", "Timedelta", "Timestamp", "concat", "crosstab", "cut",
        "date_range", "factorize", "get_dummies", "isna", "isnull", "melt", "merge", "merge_asof", "notna",
        "notnull", "pivot", "pivot_table", "qcut", "read_csv", "timedelta_range", "to_datetime", "to_numeric",
        "to_timedelta", "unique",
    )
)  # fmt: skip

_LISTED: Final = {"numpy": _NUMPY, "pandas": _PANDAS}

_ON_DEMAND: Final = frozenset(
    (
        "array_api", "char", "core", "ctypeslib", "distutils", "dtypes", "exceptions", "f2py", "fft", "ma",
        "matlib", "polynomial", "random", "rec", "strings", "testing", "typing",
    )
)  # fmt: skip
"""Parts of numpy that are loaded on first use."""

_modules = sys.modules


def only_computes(library: str, words: Iterable[str], *, by_name: bool) -> bool:
    """by_name: these are functions of the library, wherever they are in it. Otherwise they are words of code that has
    the library itself: words that are none of its names are methods of some object.
    """
    listed = _LISTED.get(library)
    if listed is None or library not in _modules:
        return False
    names = vars(_modules[library])
    unlisted = [word for word in words if word not in listed]
    return all(
        _is_universal(names[word]) if word in names else not by_name and word not in _ON_DEMAND
        for word in unlisted
    )


def _is_universal(value: Any) -> bool:
    """A function of numpy that works number by number, or the type of a number."""
    numpy = _modules["numpy"]
    return type(value) is numpy.ufunc or (isinstance(value, type) and issubclass(value, numpy.generic))


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
"""Modules and functions of these may be in reach: they have no settings, and keep nothing but caches. They may be
imported, too: an existing module is only bound, and a new one makes bindings insufficient.
"""

_LIBRARIES: Final = _TOOLS | {"numpy", "pandas", "pathlib"}
_IMPORTS: Final = _LIBRARIES - {"", "__main__", "builtins"}
"""Objects of these may be in reach: their methods change only themselves, state in HIDDEN, or files."""

_OF_PANDAS: Final = "pandas"
_SHARING_INDEXES: Final = ("0.", "1.", "2.")
"""Versions that give one index to several frames. After such an index is replaced by an equal one, the frames are
still equal, but a name set on the index no longer shows in the others, which goes unnoticed.
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
"""Those that compute or print, and `open`, whose effect is traced. Not `id`: a restored value is another object, with
another id.
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
"""Locations that may be read: all of their content is known. A decimal context has flags besides, and pyplot
figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReach:
    """What the code of a step could reach. libraries: it has objects of these. tools: modules or functions that it
    has.

    A function is `library:name`. only_here: see `FileWatch`.
    """

    facts: Facts
    libraries: frozenset[str]
    tools: frozenset[str]
    only_here: bool


def bound_only(trace: StepTrace, reach: CodeReach, names: Collection[str]) -> frozenset[str] | None:
    """The names that a step has written, if it has written only these and files; None if it may have done more.

    names: of the namespace. A written name may be bound to its former value, changed in place. Files are those of the
    working directory, which is kept separately.
    """
    if trace.opaque or trace.unrepeatable or trace.modules or not _is_harmless(reach, names):
        return None
    if not reach.only_here or any(kind_of(each) not in ("name", "file") for each in trace.writes):
        return None
    if any(kind_of(each) in ("hidden", "module") and each not in _STATES for each in trace.reads):
        return None
    return frozenset(key_of(each) for each in trace.writes if kind_of(each) == "name")


def _is_harmless(reach: CodeReach, names: Collection[str]) -> bool:
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
    """For numpy and pandas only listed functions: a module's functions by the words of the code, others by their own
    names.
    """
    library, _, function = tool.partition(":")
    if library in _TOOLS:
        return True
    return only_computes(library, (function,) if function else facts.attributes, by_name=bool(function))
