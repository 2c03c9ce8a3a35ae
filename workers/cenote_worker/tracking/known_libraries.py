"""Installed libraries of which it is known here what they do by themselves."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.own_modules import is_of_library

__builtins__ = BUILTINS

_KNOWN: Final = frozenset(
    ("annotated_types", "attr", "attrs", "cloudpickle", "cycler", "dateutil", "kiwisolver", "matplotlib",
     "mpl_toolkits", "networkx", "numpy", "pandas", "polars", "pyarrow", "pydantic", "pydantic_core", "rich",
     "scipy", "seaborn", "six", "sklearn", "statsmodels", "sympy", "torch", "tqdm", "typing_extensions",
     "xxhash")
)  # fmt: skip
"""Those that look at no file but those that their caller names, which is noticed, and ask no database otherwise."""

_modules = sys.modules


def is_unknown(library: str) -> bool:
    """Whether it is installed, and nobody knows here what it does by itself."""
    top = library.partition(".")[0]
    if top in sys.stdlib_module_names or top in _KNOWN:
        return False
    module = _modules.get(top)
    # Whoever asks a module for what it does not have calls its `__getattr__`, which may be a user's.
    place = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return type(place) is str and is_of_library(place) and "cenote_" not in top
