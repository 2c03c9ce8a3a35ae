"""How variables that cannot be kept by value come back: by running again the steps that made them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.checkpoints.state import MAX_TEXT, MAX_THINGS, Group, StoredFile
from cenote_worker.trace import Location, key_of, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """names: of variables, those among them that could be kept by value too: they share objects with others.

    steps: in the order in which they are run. given: locations of which they find what is stored; what else they
    read, earlier ones of them have written, or it is as in a fresh runtime. refused: why others do not come back.
    """

    names: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    given: frozenset[Location] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)

    def given_of(self, kind: str) -> frozenset[str]:
        """Names, paths or states. kind: as `kind_of` has it."""
        return frozenset(key_of(each) for each in self.given if kind_of(each) == kind)

    def given_groups(self, groups: Sequence[Group]) -> list[int]:
        """Places of those that the steps find: all of a group, or none."""
        names = self.given_of("name")
        return [place for place, group in enumerate(groups) if not names.isdisjoint(group.names)]

    def given_files(self, files: Sequence[StoredFile]) -> list[int]:
        """Places of those that the steps find, and of the folders that these lie in."""
        paths = self.given_of("file")
        return [place for place, file in enumerate(files) if "." in paths or _is_on_the_way(file, paths)]


def _is_on_the_way(file: StoredFile, paths: Collection[str]) -> bool:
    """Whether it is one of these, or a folder that one lies in."""
    path = file.message.path.decode("utf-8", "surrogateescape")
    return path in paths or (file.content is None and any(each.startswith(f"{path}/") for each in paths))


NOTHING_REBUILT: Final = Rebuild()


def to_message(rebuild: Rebuild) -> checkpoint_pb2.Rebuild:
    message = make(
        checkpoint_pb2.Rebuild, names=rebuild.names, steps=rebuild.steps, given=sorted(rebuild.given)
    )
    for name, reason in rebuild.refused.items():
        make(message.refused.add, name=name, reason=reason[:MAX_TEXT])
    return message


def from_message(message: checkpoint_pb2.Rebuild) -> Rebuild:
    """Raises ProtocolViolation."""
    if any(len(part) > MAX_THINGS for part in (message.names, message.steps, message.given, message.refused)):
        raise ProtocolViolation("a rebuild of more than a state can have")
    return Rebuild(
        names=tuple(message.names),
        steps=tuple(message.steps),
        given=frozenset(map(Location, message.given)),
        refused={thing.name: thing.reason for thing in message.refused},
    )
