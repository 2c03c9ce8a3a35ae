"""Optional libraries, imported by the first value that needs one. They are untyped here: they may be absent."""

from __future__ import annotations

import sys
from importlib import import_module

from cenote_security.values.node import Foreign


def numpy() -> Foreign:
    return import_module("numpy")


def pandas() -> Foreign:
    return import_module("pandas")


def polars() -> Foreign:
    return import_module("polars")


def pyarrow() -> Foreign:
    return import_module("pyarrow")


def loaded(name: str, last_name: str) -> Foreign | None:
    """A library if it is imported already, to its end: `last_name` is something that only a whole one has.

    A value cannot be of a class whose library is not imported, so taking values apart never imports one.
    """
    module = sys.modules.get(name)
    return module if hasattr(module, last_name) else None
