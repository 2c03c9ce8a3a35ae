"""Which description is for which object."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking import arrays
from cenote_worker.tracking.classes import Classes, module_of, mro
from cenote_worker.tracking.frames import Frames, arrow_handlers
from cenote_worker.tracking.graph import Handler
from cenote_worker.tracking.objects import Objects
from cenote_worker.tracking.standard import STANDARD

__builtins__ = BUILTINS

_modules = sys.modules


class Handlers:
    """By exact type where there is one for it; libraries' are known once the libraries are imported."""

    def __init__(self) -> None:
        objects = Objects(Classes())
        self._instance = objects.instance
        self._exact: dict[type, Handler] = {
            **STANDARD,
            FunctionType: objects.function,
            ModuleType: objects.module,
            type: objects.cls,
        }
        self._frames: Frames | None = None
        self._met: set[str] = set()

    def look_around(self) -> None:
        """Learns of libraries that have been imported since. Raises whatever a ruined library makes of it."""
        for library in ("numpy", "pandas", "pyarrow"):
            if library not in self._met and _is_ready(library):
                self._met.add(library)
                self._learn(library, _modules[library])

    def _learn(self, library: str, module: ModuleType) -> None:
        if library == "numpy":
            self._exact.update(arrays.handlers(module))
        elif library == "pandas":
            self._frames = Frames(module)
            self._exact.update(self._frames.exact)
        else:
            self._exact.update(arrow_handlers(module))

    def of(self, value: object) -> Handler:
        cls = type(value)
        handler = self._exact.get(cls)
        if handler is None and self._frames is not None and _is_of_pandas(cls):
            handler = self._frames.handler(cls)
        return handler or self._instance


def _is_ready(library: str) -> bool:
    """Whether it has been imported to its end."""
    module = _modules.get(library)
    specification = getattr(module, "__spec__", None)
    return type(module) is ModuleType and not getattr(specification, "_initializing", False)


def _is_of_pandas(cls: type) -> bool:
    return any(module_of(base).startswith("pandas.") for base in mro(cls))
