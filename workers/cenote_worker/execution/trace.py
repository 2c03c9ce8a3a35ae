"""What one step was seen to read and to write: the terms that the jail, the record and the planner share.

A location is anything whose content can matter to a later step. Its version stands for that content: equal versions
mean equal content, and a version that equals no other means that nothing is known about the content.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NewType

import xxhash

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Location = NewType("Location", str)
"""`name:df`, `file:data/a.csv` (relative to the working directory), `hidden:random`, `module:json`,
`import:xml.dom`; see below."""

Version = NewType("Version", str)

ABSENT: Final = Version("")
"""Version of an unbound name or a missing file."""

ANYTHING: Final = Location("*")
"""Any location: read or written by a step of which no more is known."""

HIDDEN: Final = ("random", "numpy.random", "torch.random", "environ", "cwd", "sys.path", "warnings", "logging",
                 "locale", "process", "matplotlib", "pandas", "decimal", "numpy", "torch")  # fmt: skip
"""State of the process that programs can see, that no name refers to, and that can be carried from one process to
another. Some libraries have more, which only rerunning steps can make again."""


_ENTRY: Final = 64
"""Bytes that a dictionary takes for an entry, without its key."""

_NO_REASON: Final = "it may have read or written anything"

_TOO_MUCH: Final = "it touched more than can be told"


ASKS_FOR_TIMES: Final = "it asks when a file was changed"
"""A reason why a step may give another result each time."""


WITH_TRACEBACK: Final = "the traceback of an exception leads to all local names"
ADDRESS_KNOWN: Final = "its address may be known"
BLIND: Final = "does not tell what it holds"
"""End of the reason why an opaque value is not carried over: it may refer to anything that its step had."""

LEFT_BEHIND: Final = frozenset((WITH_TRACEBACK, ADDRESS_KNOWN))
"""Reasons why a value is not carried over that also mean that a stored one would differ."""


def name(variable: str) -> Location:
    return Location(f"name:{variable}")


def file(path: str) -> Location:
    """path: relative to the working directory, or absolute for what lies elsewhere."""
    return Location(f"file:{path}")


TREE: Final = file(".")
"""All files and their contents: for steps that list folders, or start programs, which may read any file."""


def hidden(state: str) -> Location:
    """state: one of HIDDEN, or the module that has it."""
    return Location(f"hidden:{state}")


def module(dotted: str) -> Location:
    """Attributes of a module that user code has set."""
    return Location(f"module:{dotted}")


def imported(dotted: str) -> Location:
    """Whether a module is there as an attribute of the package that it is part of."""
    return Location(f"import:{dotted}")


KINDS: Final = ("name:", "file:", "hidden:", "module:", "import:")
"""The prefixes of locations."""


def inside(library: str) -> Location:
    """The internal state of an installed library, however deep. Only steps that use the library depend on it."""
    return Location(f"module:{library}{_INSIDE}")


def is_inside(location: Location) -> bool:
    return location.endswith(_INSIDE) and kind_of(location) == "module"


_INSIDE: Final = ".*"

LIBRARIES: Final = module("*")
"""The set of libraries with attributes set by user code: a setting in a further one may affect any step."""

DATABASES: Final = module("duckdb.databases")
RESULTS: Final = module("duckdb.results")
"""The contents of DuckDB's databases, and the results of its connections not fetched yet. Only steps that query
DuckDB depend on the former, and only steps that fetch the result of another step's query on the latter."""

LOCKS: Final = hidden("locks")
"""The files locked by this process. Only steps that request a lock depend on it."""


def content_version(data: bytes) -> Version:
    """The version of a file with this content."""
    return Version(xxhash.xxh3_128_hexdigest(data))


_OF_A_FILE: Final = re.compile(r"[0-9a-f]{32} (.+)", re.DOTALL)


def form_of(version: Version) -> str:
    """The part of a file's version that remains when it is rewritten: whether it is a folder or a link, and its mode.

    Empty for ordinary files, and for missing ones.
    """
    found = _OF_A_FILE.fullmatch(version)
    if found is not None:
        return found[1]
    return version if version.startswith(("folder", "link")) else ""


def kind_of(location: Location) -> str:
    """`name`, `file`, `hidden`, `module` or `import`; empty for ANYTHING."""
    return location.partition(":")[0] if location != ANYTHING else ""


def key_of(location: Location) -> str:
    """The name, path, state or module."""
    return location.partition(":")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueKind:
    """type, shape: as in VariableInfo."""

    type: str
    shape: tuple[int, ...] | None = None


_VIEWS: Final = ("reads", "writes", "unportable", "kinds")


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """One step's dependencies, as the running process saw them.

    reads: everything that may have influenced the step, with its version before it; includes what it may have
    written, since storing an equal value leaves no sign. writes: what is different after it, with its version then;
    ABSENT for what it deleted; names in the order of the namespace. moved: of these, names that were deleted and
    bound again, and so are among the last ones now. mutated: of these, names of the same object with another content.
    groups: the written names together with all names that share mutable objects with them after the step; each group
    can only be carried over as a whole.
    modules: imported for the first time. opaque: reasons why it may have read or written more than is listed.
    unrepeatable: reasons why a second run may have another result (time, entropy, threads, set order).
    unseen: reasons why it may have changed files of mounts, whose changes cannot be seen.
    unportable: for each written location that cannot be stored and loaded, the reason.
    kinds: kinds of the values of the first some hundred written names; for people: no decision depends on it.
    """

    reads: Mapping[Location, Version] = field(default_factory=lambda: MappingProxyType({}))
    writes: Mapping[Location, Version] = field(default_factory=lambda: MappingProxyType({}))
    mutated: frozenset[Location] = frozenset()
    moved: frozenset[Location] = frozenset()
    groups: tuple[frozenset[Location], ...] = ()
    modules: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    unrepeatable: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    unportable: Mapping[Location, str] = field(default_factory=lambda: MappingProxyType({}))
    kinds: Mapping[Location, ValueKind] = field(default_factory=lambda: MappingProxyType({}))
    told: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)
    """The trace as a serialised message, cached at the first use: for a client, a record, a journal."""

    def __getstate__(self) -> dict[str, object]:
        """State for pickle and copy: dictionaries, since read-only views can be neither pickled nor copied."""
        views = {name: dict(getattr(self, name)) for name in _VIEWS}
        return {**self.__dict__, **views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.update((name, MappingProxyType(state[name])) for name in _VIEWS)

    @cached_property
    def size(self) -> int:
        """Approximate bytes of memory. Computed once: it is used half a dozen times per step."""
        seen = (self.reads, self.writes, self.mutated, self.moved, self.unportable, self.kinds, *self.groups)
        of_them = (self.reads.values(), self.writes.values(), self.unportable.values())
        told = (*seen, *of_them, self.modules, self.opaque, self.unrepeatable, self.unseen)
        return sum([_taken(texts) for texts in told if texts])  # most steps have nothing of most of them

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Why the step may have read or written more than is listed. Computed once: queries use it for each step."""
        if ANYTHING in self.reads or ANYTHING in self.writes:
            return self.opaque or (_NO_REASON,)
        return self.opaque

    @property
    def deleted(self) -> frozenset[Location]:
        return frozenset(location for location, version in self.writes.items() if version == ABSENT)


def _taken(texts: Collection[str]) -> int:
    return _ENTRY * len(texts) + sum(map(sys.getsizeof, texts))


def untold(trace: StepTrace) -> StepTrace:
    """Replaces a trace that is too large: anything may have been touched."""
    version = next(iter(trace.writes.values()), Version("?"))
    return StepTrace(
        reads={ANYTHING: version},
        writes={ANYTHING: version},
        opaque=(_TOO_MUCH,),
        unrepeatable=(_TOO_MUCH,),
    )
