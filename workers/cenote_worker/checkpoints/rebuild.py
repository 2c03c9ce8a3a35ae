"""How variables that cannot be kept by value come back: by running again the steps that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.checkpoints.state import MAX_TEXT, MAX_THINGS
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


NOTHING_REBUILT: Final = Rebuild()


def to_message(rebuild: Rebuild) -> checkpoint_pb2.Rebuild:
    message = checkpoint_pb2.Rebuild(names=rebuild.names, steps=rebuild.steps, given=sorted(rebuild.given))
    for name, reason in rebuild.refused.items():
        message.refused.add(name=name, reason=reason[:MAX_TEXT])
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
