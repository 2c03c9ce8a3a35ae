"""Which description is for which object."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking import (
    arrays,
    compiled,
    databases,
    duckdb_state,
    objects,
    polars_data,
    tables,
    tensors,
)
from cenote_worker.tracking.classes import Classes, module_of, mro
from cenote_worker.tracking.frames import Frames, arrow_handlers
from cenote_worker.tracking.graph import Handler
from cenote_worker.tracking.objects import Objects
from cenote_worker.tracking.standard import STANDARD

__builtins__ = BUILTINS

_modules = sys.modules


_MADE: Final[dict[str, Callable[[ModuleType], dict[type, Handler]]]] = {
    "pyarrow": arrow_handlers,
    "polars": polars_data.handlers,
    "pydantic_core": compiled.handlers,
    "sqlite3": databases.handlers,
    "csv": tables.handlers,
    "duckdb": duckdb_state.handlers,
    "torch": tensors.handlers,
}
"""By library, what gives the handlers for its exact types."""


class _Libraries:
    """What is known of those that are imported. Others are learned of when they are."""

    def __init__(self) -> None:
        self.exact: dict[type, Handler] = {}
        self.frames: Frames | None = None
        self.array: type | None = None
        self.met: set[str] = set()

    def look_around(self, met: Collection[str] = ()) -> None:
        """met: those that somebody else knows. Raises whatever a ruined library makes of it."""
        for library in ("numpy", "pandas", *_MADE):
            if library not in self.met and library not in met and _is_ready(library):
                self.met.add(library)
                self._learn(library, _modules[library])

    def _learn(self, library: str, module: ModuleType) -> None:
        if library == "numpy":
            self.array = module.ndarray
            self.exact.update(arrays.handlers(module))
        elif library == "pandas":
            self.frames = Frames(module)
            self.exact.update(self.frames.exact)
        else:
            self.exact.update(_MADE[library](module))


def _imported_early() -> _Libraries:
    """Those that are there when this module is imported: in a zygote, what it has preloaded. A worker need not make
    this, and write to the classes of all of them (each one's count of references), but once it has to learn of more.
    """
    found = _Libraries()
    with suppress(Exception):
        found.look_around()
        return found
    return _Libraries()  # whoever needs them is told


def _is_ready(library: str) -> bool:
    """Whether it has been imported to its end."""
    module = _modules.get(library)
    specification = getattr(module, "__spec__", None)
    return type(module) is ModuleType and not getattr(specification, "_initializing", False)


_EARLY: Final = _imported_early()


class Handlers:
    """By exact type where there is one for it; libraries' are known once the libraries are imported."""

    def __init__(self) -> None:
        ours = Objects(Classes())
        self._instance = ours.instance
        self._basic: dict[type, Handler] = {
            **STANDARD,
            FunctionType: ours.function,
            ModuleType: ours.module,
            type: ours.cls,
        }
        self._late = _Libraries()

    def look_around(self) -> None:
        """Learns of libraries that have been imported since. Raises whatever a ruined library makes of it."""
        self._late.look_around(_EARLY.met)

    def of(self, value: object) -> Handler:
        cls = type(value)
        handler = self._basic.get(cls) or _EARLY.exact.get(cls) or self._late.exact.get(cls)
        frames = _EARLY.frames or self._late.frames
        if handler is None and frames is not None and _is_of_pandas(cls):
            handler = frames.handler(cls)
        return handler or self._derived(cls) or self._instance

    def _derived(self, cls: type) -> Handler | None:
        """For classes derived from those of libraries, or of the interpreter, that are known exactly."""
        bases = mro(cls)
        if (_EARLY.array or self._late.array) in bases:
            return arrays.derived
        return objects.weak if weakref.ReferenceType in bases else None


def _is_of_pandas(cls: type) -> bool:
    return any(module_of(base).startswith("pandas.") for base in mro(cls))
