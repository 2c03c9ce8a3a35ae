"""A fingerprint: what one name's value was at the last look, according to the description for its class."""

from __future__ import annotations

import os
import sys
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Final

from cenote_worker.execution.trace import Location, Version
from cenote_worker.jail.tracking.budget import TOO_LARGE, InspectionBudget, TooDear
from cenote_worker.jail.tracking.code.bytecode_effects import NOTHING, Facts
from cenote_worker.jail.tracking.descriptions import extension_objects, objects, standard
from cenote_worker.jail.tracking.descriptions.classes import Classes, module_of, mro
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph, Stretch
from cenote_worker.jail.tracking.descriptions.known_digests import KnownDigests
from cenote_worker.jail.tracking.descriptions.objects import Objects
from cenote_worker.jail.tracking.descriptions.standard import STANDARD
from cenote_worker.jail.tracking.libraries import (
    duckdb_connections,
    numpy_arrays,
    polars_frames,
    pytorch,
    sqlite_connections,
)
from cenote_worker.jail.tracking.libraries.pandas_frames import Frames, arrow_handlers
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules


_MADE: Final[dict[str, Callable[[ModuleType], dict[type, Handler]]]] = {
    "pyarrow": arrow_handlers,
    "polars": polars_frames.handlers,
    "pydantic_core": extension_objects.handlers,
    "sqlite3": sqlite_connections.handlers,
    "csv": standard.handlers,
    "duckdb": duckdb_connections.handlers,
    "torch": pytorch.handlers,
}
"""By library, a function that gives the handlers for its exact types."""


class _Libraries:
    """What is known of imported libraries. Others are added when they are imported."""

    def __init__(self) -> None:
        self.exact: dict[type, Handler] = {}
        self.frames: Frames | None = None
        self.array: type | None = None
        self.met: set[str] = set()

    def look_around(self, met: Collection[str] = ()) -> None:
        """met: libraries that are known elsewhere. Raises any error of a broken library."""
        for library in ("numpy", "pandas", *_MADE):
            if library not in self.met and library not in met and _is_ready(library):
                self.met.add(library)
                self._learn(library, _modules[library])

    def _learn(self, library: str, module: ModuleType) -> None:
        if library == "numpy":
            self.array = module.ndarray
            self.exact.update(numpy_arrays.handlers(module))
        elif library == "pandas":
            self.frames = Frames(module)
            self.exact.update(self.frames.exact)
        else:
            self.exact.update(_MADE[library](module))


def _imported_early() -> _Libraries:
    """The libraries present when this module is imported: in a zygote, the preloaded ones. A worker then need not
    build this, and write to the reference count of each class, except when it has to add more.
    """
    found = _Libraries()
    with suppress(Exception):
        found.look_around()
        return found
    return _Libraries()  # the error is raised again for a caller that needs them


def _is_ready(library: str) -> bool:
    """Whether its import has finished."""
    module = _modules.get(library)
    specification = getattr(module, "__spec__", None)
    return type(module) is ModuleType and not getattr(specification, "_initializing", False)


_EARLY: Final = _imported_early()


class Handlers:
    """Handlers by exact type where there is one; those of libraries are known once the libraries are imported."""

    def __init__(self) -> None:
        ours = Objects(Classes())
        self._instance, self._instances = ours.instance, ours.instances
        self._basic: dict[type, Handler] = {
            **STANDARD,
            FunctionType: ours.function,
            ModuleType: ours.module,
            type: ours.cls,
        }
        self._late = _Libraries()

    def look_around(self) -> None:
        """Adds libraries that have been imported since. Raises any error of a broken library."""
        self._late.look_around(_EARLY.met)

    def of(self, value: object) -> Handler:
        cls = type(value)
        handler = self._basic.get(cls) or _EARLY.exact.get(cls) or self._late.exact.get(cls)
        frames = _EARLY.frames or self._late.frames
        if handler is None and frames is not None and _is_of_pandas(cls):
            handler = frames.handler(cls)
        return handler or self._derived(cls) or self._instance

    def many(self, graph: ObjectGraph, values: list[object]) -> object:
        """Describes many objects of one type; None if they must be described one by one."""
        return self._instances(graph, values) if self.of(values[0]) == self._instance else None

    def _derived(self, cls: type) -> Handler | None:
        """For classes derived from those of libraries, or of the interpreter, that are known exactly."""
        bases = mro(cls)
        if (_EARLY.array or self._late.array) in bases:
            return numpy_arrays.derived
        return objects.weak if weakref.ReferenceType in bases else None


def _is_of_pandas(cls: type) -> bool:
    return any(module_of(base).startswith("pandas.") for base in mro(cls))


_random = os.urandom
_NOTHING: Final[Mapping[int, int]] = {}
_NO_CLASSES: Final[Mapping[int, type]] = {}
_NOWHERE: Final[frozenset[Location]] = frozenset()


UNSEEN: Final = "?"
"""Prefix of versions of what cannot be inspected: they can be equal only as tokens."""


_UNIQUE: Final = 8
"""Random bytes of a version that is unique to one look."""


def fresh() -> Version:
    """A version that is unique, across all forks of the process."""
    return Version(f"{UNSEEN}{_random(_UNIQUE).hex()}")


def is_unique(version: Version) -> bool:
    """Whether another look at the same value would give another version."""
    seen = version.partition("+")[0]
    return seen.startswith(UNSEEN) and len(seen) == len(UNSEEN) + 2 * _UNIQUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """See `ObjectGraph`. identity: id of the value itself. owned, shown: in order, without overlaps. stays: why it
    cannot be carried over, as far as known here. constant: nothing in it can ever change."""

    identity: int
    version: Version
    holds: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    covered: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    owned: tuple[Stretch, ...] = ()
    shown: tuple[Stretch, ...] = ()
    refers: frozenset[Location] = _NOWHERE
    kin: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    classes: Mapping[int, type] = field(default_factory=lambda: _NO_CLASSES)
    facts: Facts = NOTHING
    opaque: str = ""
    stays: str = ""
    restless: bool = False
    blind: bool = False
    calling: bool = False
    finalizes: bool = False
    boundless: bool = False

    def shows(self, other: Fingerprint) -> bool:
        """Whether it shows memory of arrays that the other holds."""
        few, many = sorted((self.shown, other.owned), key=len)
        for first, last in few:
            before = bisect_left(many, (last,))  # those that begin before its end
            if before and many[before - 1][1] > first:
                return True
        return False

    @property
    def constant(self) -> bool:
        return not (self.holds or self.covered or self.shown or self.opaque)


def merged(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """The same memory in order, with no overlap."""
    found = list[Stretch]()
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return tuple(found)


def fingerprint_of(
    value: object,
    root: object,
    namespace: dict[str, object],
    own_modules: Mapping[str, ModuleType],
    handlers: Handlers,
    untouched: KnownDigests,
    budget: InspectionBudget,
) -> Fingerprint:
    """root: the object itself, of which `value` may be a view; it is described by content, not by name."""
    graph = ObjectGraph(namespace, own_modules, untouched, budget)
    try:
        version = Version(graph.walk(value, root, handlers.of, handlers.many))
    except TooDear:
        graph.out_of_sight(TOO_LARGE)
    except Exception as error:  # a library that has been changed, or a value that another thread changes
        graph.out_of_sight(f"looking at it failed: {type(error).__name__}")
    return Fingerprint(
        identity=id(root),
        version=fresh() if graph.opaque else Version(f"{UNSEEN}{version}") if graph.sealed else version,
        holds=graph.holds,
        covered=graph.covered,
        owned=merged(graph.owned.values()) if graph.owned else (),
        shown=merged(graph.shown) if graph.shown else (),
        refers=frozenset(graph.refers),
        kin=frozenset(graph.kin),
        packages=frozenset(graph.packages),
        tools=frozenset(graph.tools),
        classes=graph.classes,
        facts=graph.facts | Facts(attributes=frozenset(graph.words)) if graph.words else graph.facts,
        opaque=graph.opaque,
        stays=graph.stays or graph.opaque,
        restless=graph.restless,
        blind=graph.blind,
        calling=graph.calling,
        finalizes=graph.finalizes,
        boundless=graph.boundless,
    )
