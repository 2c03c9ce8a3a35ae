"""Hints for imports that fail, and for names that are modules not imported yet."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from itertools import islice

from cenote_worker.in_jail.bounded import bounded_str
from cenote_worker.in_jail.frames import Step
from cenote_worker.in_jail.nearest import nearest
from cenote_worker.in_jail.network import has_way_out
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_scandir = os.scandir

_ALIASES = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "pl": "import polars as pl",
    "pa": "import pyarrow as pa",
    "plt": "import matplotlib.pyplot as plt",
    "sns": "import seaborn as sns",
    "dt": "import datetime as dt",
    "Path": "from pathlib import Path",
    "Counter": "from collections import Counter",
    "defaultdict": "from collections import defaultdict",
    "deque": "from collections import deque",
    "namedtuple": "from collections import namedtuple",
    "dataclass": "from dataclasses import dataclass",
    "field": "from dataclasses import field",
    "timedelta": "from datetime import timedelta",
    "date": "from datetime import date",
    "Decimal": "from decimal import Decimal",
    "Fraction": "from fractions import Fraction",
    "Enum": "from enum import Enum",
    "partial": "from functools import partial",
    "reduce": "from functools import reduce",
    "chain": "from itertools import chain",
    "product": "from itertools import product",
    "combinations": "from itertools import combinations",
    "sqrt": "from math import sqrt",
    "Any": "from typing import Any",
    "Optional": "from typing import Optional",
    "uuid4": "from uuid import uuid4",
}
_DISTRIBUTIONS = {
    "scikit_learn": "sklearn",
    "pillow": "PIL",
    "opencv_python": "cv2",
    "beautifulsoup4": "bs4",
    "pyyaml": "yaml",
    "python_dateutil": "dateutil",
}
_FROM = re.compile(r"cannot import name '([^']+)' from (?:partially initialized module )?'([^']+)'")

_name_of = ImportError.__dict__["name"].__get__
_modules = sys.modules
_find_spec = importlib.util.find_spec


def known_import(name: str) -> str:
    """The import statement that a name most likely lacks; empty when it is no well-known one."""
    if statement := _ALIASES.get(name):
        module = statement.split()[1]
        missing = "" if _exists(module) else f", but {module} is not installed here{_without_network('')}"
        return f"not imported: `{statement}`{missing}"
    if name in sys.stdlib_module_names and not name.startswith("_"):
        return f"not imported: `import {name}`"
    return f"not imported: `import {name}`" if name in _modules and "." not in name else ""


def import_hint(error: BaseException, _steps: list[Step]) -> str:
    if match := _FROM.search(bounded_str(error, 500)):
        return _missing_member(match[1], match[2])
    name = _name_of(error)
    if not isinstance(error, ModuleNotFoundError) or type(name) is not str:
        return ""
    parent, _, child = name.rpartition(".")
    if parent and parent in _modules:
        return _found(nearest(child, _submodules(parent)), f"nearest in {parent}")
    return f"not installed here{_without_network(',')}{_alternative(name)}"


def _without_network(joint: str) -> str:
    return "" if has_way_out() else f"{joint} and there is no network"


def _missing_member(name: str, module: str) -> str:
    if module not in _modules:
        return ""
    members = [member for member in list(vars(_modules[module])) if member[:1] != "_"]
    return _found(nearest(name, members), f"nearest in {module}")


def _alternative(name: str) -> str:
    if (module := _DISTRIBUTIONS.get(name.replace("-", "_").lower())) and _exists(module):
        return f"; it is imported as {module}"
    hint = _found(nearest(name, _installed()), "nearest installed")
    return f"; {hint}" if hint else ""


def _found(names: list[str], what: str) -> str:
    return f"{what}: {', '.join(names)}" if names else ""


def _exists(module: str) -> bool:
    if module.partition(".")[0] in _modules:
        return True
    try:
        return _find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _installed() -> Iterator[str]:
    """Top-level modules: the standard library's, then those in the folders of `sys.path`."""
    yield from (name for name in sys.stdlib_module_names if not name.startswith("_"))
    for folder in sys.path[:20]:
        yield from _modules_in(folder)


def _submodules(package: str) -> Iterator[str]:
    for folder in list(getattr(_modules[package], "__path__", ()))[:5]:
        yield from _modules_in(folder)


def _modules_in(folder: str) -> Iterator[str]:
    try:
        with _scandir(folder or ".") as entries:
            files = [entry.name for entry in islice(entries, 5_000)]
    except OSError:
        return
    for file in files:
        name = file.partition(".")[0]
        if name.isidentifier() and (file.endswith((".py", ".so")) or "." not in file):
            yield name
