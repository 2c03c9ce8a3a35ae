"""What one step was seen to read and to write: the words that the jail, the record and the planner share.

A location is anything whose content can matter to a later step. Its version stands for that content: equal versions
mean equal content, and a version that nobody else has means that nothing is known about it.
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
"""Of a name that is not bound, a file that is not there."""

ANYTHING: Final = Location("*")
"""Read or written by a step of which no more is known: whatever there is."""

HIDDEN: Final = ("random", "numpy.random", "torch.random", "environ", "cwd", "sys.path", "warnings", "logging",
                 "locale", "process", "matplotlib", "pandas", "decimal", "numpy", "torch")  # fmt: skip
"""State of the process that programs can see, that no name leads to, and that can be carried from one process to
another. Of some libraries there is more, which only its own steps can make again."""


_ENTRY: Final = 64
"""Bytes that a dictionary takes for an entry, without its key."""

_NO_REASON: Final = "it may have read or written anything"

_TOO_MUCH: Final = "it touched more than can be told"


ASKS_FOR_TIMES: Final = "it asks when a file was changed"
"""Why a step may give something else each time."""


WITH_TRACEBACK: Final = "the traceback of an exception leads to all local names"
ADDRESS_KNOWN: Final = "its address may be known"
BLIND: Final = "does not tell what it holds"
"""How the reason ends why a value is not carried over that may hold whatever the step had which made it."""

LEFT_BEHIND: Final = frozenset((WITH_TRACEBACK, ADDRESS_KNOWN))
"""Why a value is not carried over, of those reasons for which a stored one is not what it was either."""


def name(variable: str) -> Location:
    return Location(f"name:{variable}")


def file(path: str) -> Location:
    """path: relative to the working directory, or absolute for what lies elsewhere."""
    return Location(f"file:{path}")


TREE: Final = file(".")
"""Which files there are, and what is in them: for whoever lists folders, or starts programs that may read any."""


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
"""How locations begin."""


def inside(library: str) -> Location:
    """What an installed library keeps for itself, however deep. Only who uses the library meets it."""
    return Location(f"module:{library}{_INSIDE}")


def is_inside(location: Location) -> bool:
    return location.endswith(_INSIDE) and kind_of(location) == "module"


_INSIDE: Final = ".*"

LIBRARIES: Final = module("*")
"""Which libraries have something in them that user code has set: any step may meet what is set in a further one."""

DATABASES: Final = module("duckdb.databases")
RESULTS: Final = module("duckdb.results")
"""What DuckDB's databases have, and what its connections were asked for and have not given yet. Only who asks DuckDB
meets the one, and only who fetches what another step has asked for the other."""

LOCKS: Final = hidden("locks")
"""Which files are locked by this process. Only who asks for a lock meets it."""


def content_version(data: bytes) -> Version:
    """Of a file that holds this."""
    return Version(xxhash.xxh3_128_hexdigest(data))


_OF_A_FILE: Final = re.compile(r"[0-9a-f]{32} (.+)", re.DOTALL)


def form_of(version: Version) -> str:
    """What is left of a file's version when it is written anew: that it is a folder or a link, and who may do what.

    Empty for usual files, and where there is none.
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

    reads: whatever can have influenced the step, with its version before it; what it may have written is there too,
    since a store of an equal value shows nowhere. writes: what is different after it, with its version then; ABSENT
    for what it deleted; names in the order that the namespace has them in. moved: of these, what was taken away and
    bound again, and so is among the last ones now. mutated: of these, what is the same object with another content.
    groups: the written names together with all names that share changeable objects with them after the step; each
    can only be carried over as a whole.
    modules: imported for the first time. opaque: reasons why it may have read or written more than is listed.
    unrepeatable: reasons why a second run may give something else (time, entropy, threads, set order).
    unseen: reasons why it may have changed files of mounts, of which nobody can have seen anything.
    unportable: for each written location that cannot be stored and loaded, the reason.
    kinds: what the written names hold now; the first some hundred of them, and for people: no decision is due to it.
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
    """The same as a message, once somebody has said it: to a client, a record, a journal. See `traced.fill`."""

    def __getstate__(self) -> dict[str, object]:
        """What pickle and copy take: dictionaries, since read-only views of them can be neither."""
        views = {name: dict(getattr(self, name)) for name in _VIEWS}
        return {**self.__dict__, **views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.update((name, MappingProxyType(state[name])) for name in _VIEWS)

    @cached_property
    def size(self) -> int:
        """Roughly, in bytes: what it takes to keep it. Counted once: each step is asked for it half a dozen times."""
        seen = (self.reads, self.writes, self.mutated, self.moved, self.unportable, self.kinds, *self.groups)
        of_them = (self.reads.values(), self.writes.values(), self.unportable.values())
        told = (*seen, *of_them, self.modules, self.opaque, self.unrepeatable, self.unseen)
        return sum([_taken(texts) for texts in told if texts])  # most steps have nothing of most of them

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Why the step may have read or written more than is listed. Worked out once: questions ask each step."""
        if ANYTHING in self.reads or ANYTHING in self.writes:
            return self.opaque or (_NO_REASON,)
        return self.opaque

    @property
    def deleted(self) -> frozenset[Location]:
        return frozenset(location for location, version in self.writes.items() if version == ABSENT)


def _taken(texts: Collection[str]) -> int:
    return _ENTRY * len(texts) + sum(map(sys.getsizeof, texts))


def untold(trace: StepTrace) -> StepTrace:
    """Instead of one that is too large: anything may have been touched."""
    version = next(iter(trace.writes.values()), Version("?"))
    return StepTrace(
        reads={ANYTHING: version},
        writes={ANYTHING: version},
        opaque=(_TOO_MUCH,),
        unrepeatable=(_TOO_MUCH,),
    )
