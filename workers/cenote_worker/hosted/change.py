"""What a client changes in a runtime without code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

from cenote_worker.history.events import PutIn
from cenote_worker.history.step import START, StepKind, StepRecord
from cenote_worker.supervisor.requests import OWNER, Seat
from cenote_worker.trace import ABSENT, TREE, Location, StepTrace, Version, content_version, file, name

_FOLDER = Version("folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change. names: of variables, or paths of files.

    data: what the file holds then, None where that is too much to be kept. unspeakable: its path is no plain text, so
    that nobody can say which file it was. put_in: what an injection is to its history.
    along, found: see DoneReply. stands_for: the step that is done again.
    number: of its step; START before the first one.
    """

    kind: StepKind
    names: tuple[str, ...]
    data: bytes | None = field(default=None, repr=False)
    unspeakable: bool = False
    put_in: PutIn | None = None
    along: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    stands_for: StepRecord | None = None
    cause: str = ""
    seat: Seat = OWNER
    number: int = START

    def trace(self) -> StepTrace | None:
        """What a client changes is known without looking, but for which files there are in all.

        That has a version that nobody else has. What is removed was there, as it was: it may be a folder by now.
        """
        if self.stands_for is not None and self.kind != "injection":
            return self.stands_for.trace
        if self.unspeakable:
            return None
        if self.kind == "injection":
            return self._put_in_trace()
        removed = frozenset(map(file, self.names)) if self.kind == "removal" else frozenset[Location]()
        return StepTrace(writes=MappingProxyType(dict(self._writes())), mutated=removed)

    def _put_in_trace(self) -> StepTrace:
        """Values that are put in together may share objects, their classes among them; done again, they are equal.

        A class that goes along is bound where there is nothing of its name.
        """
        former = self.stands_for.trace if self.stands_for is not None else None
        together = tuple(map(name, (*self.names, *self.along)))
        own = Version(f"?step {self.number}")
        writes = {each: former.writes.get(each, own) if former is not None else own for each in together}
        reads = dict.fromkeys(map(name, self.along), ABSENT)
        reads |= dict.fromkeys(map(name, self.found), Version(f"?found by step {self.number}"))
        return StepTrace(
            reads=MappingProxyType(reads), writes=MappingProxyType(writes), groups=(frozenset(together),)
        )

    def _writes(self) -> Iterator[tuple[Location, Version]]:
        own = Version(f"?step {self.number}")
        if self.kind == "deletion":
            yield from ((name(each), ABSENT) for each in self.names)
            return
        for path in self.names:
            written = content_version(self.data) if self.data is not None else own
            yield file(path), ABSENT if self.kind == "removal" else written
            if self.kind == "upload":
                yield from ((file(folder), _FOLDER) for folder in _folders(path))
        yield TREE, own


def _folders(path: str) -> Iterator[str]:
    """Those that it is in, which are made if need be."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
