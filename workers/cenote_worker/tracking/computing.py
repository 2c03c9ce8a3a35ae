"""Functions and classes of numpy and pandas that compute and leave nothing behind, by their names.

A library has others that set how it prints or computes, draw numbers, keep what they were given or look at the
process. So what is not listed here is not known to be harmless.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from cenote_worker.pristine import BUILTINS

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
"""Parts of numpy that are there only when somebody asks for them."""

_modules = sys.modules


def only_computes(library: str, words: Iterable[str], *, by_name: bool) -> bool:
    """by_name: these are functions of the library, wherever they lie in it. Otherwise they are words of code that has
    the library itself: those that are none of its names are methods of something.
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
    """A function of numpy's that works number by number, or the type of a number."""
    numpy = _modules["numpy"]
    return type(value) is numpy.ufunc or (isinstance(value, type) and issubclass(value, numpy.generic))
