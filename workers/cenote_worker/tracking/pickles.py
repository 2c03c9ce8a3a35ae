"""What pickles speak of: whether all of it is known, so that who loads one has done no more than that says."""

from __future__ import annotations

import copyreg
from collections.abc import Collection, Iterable
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_MAIN: Final = "__main__"

_DATA: Final = frozenset(
    ("numpy", "pandas", "sklearn", "scipy", "collections", "datetime", "decimal", "fractions", "uuid", "pathlib",
     "zoneinfo", "polars", "pyarrow", "_codecs", "array")
)  # fmt: skip
"""Libraries whose classes and functions, as pickles name them, make values and do nothing else."""

_FUNCTIONS: Final = {
    "copyreg": frozenset(("_reconstructor", "__newobj__", "__newobj_ex__")),
    "functools": frozenset(("partial",)),
    "operator": frozenset(("itemgetter", "attrgetter", "methodcaller")),
    "types": frozenset(("SimpleNamespace",)),
    "joblib.numpy_pickle": frozenset(("NumpyArrayWrapper", "NDArrayWrapper", "ZNDArrayWrapper")),
    "random": frozenset(("Random",)),
    "builtins": frozenset(
        ("bool", "bytearray", "bytes", "complex", "dict", "enumerate", "filter", "float", "frozenset", "getattr",
         "int", "iter", "list", "map", "object", "range", "reversed", "set", "slice", "str", "tuple", "zip",
         "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
         "NameError", "NotImplementedError", "OSError", "OverflowError", "RuntimeError", "StopIteration", "TypeError",
         "ValueError", "ZeroDivisionError")
    ),
}  # fmt: skip
"""By module, what else does."""

LOADING: Final = {
    "pickle": frozenset(("load", "loads")),
    "cloudpickle": frozenset(("load", "loads")),
    "joblib": frozenset(("load",)),
}
"""By library, functions that load a pickle, and do what that names. A loader that is kept does more: it remembers
what earlier pickles have named."""


def is_known(named: Iterable[tuple[str, str]], own_modules: Collection[str]) -> bool:
    """Whether nothing was named but values' classes, and the user's own, whose code is followed where it is named."""
    return not vars(copyreg)["_extension_registry"] and all(
        home == _MAIN or home in own_modules or _makes_values(home, what) for home, what in named
    )


def _makes_values(home: str, what: str) -> bool:
    return home.partition(".")[0] in _DATA or what in _FUNCTIONS.get(home, ())
