"""The contents of a state, location by location, and how a copy of it differs. Pure.

A branch, a restored and a woken runtime are copies by value. The original and the copy are indexed in the same way,
each in its own process, and the two indexes are compared here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.execution.trace import ABSENT, Location, Version, key_of, kind_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST_NAMED: Final = 20
"""Names in one line."""

MAX_REASON: Final = 400
"""Characters."""

FAILS: Final = "rebuilding it fails: "
"""How `Indexed.untried` begins where a pickle was made but loading it raised an error."""

OTHER_CONTENT: Final = "its content is not what it was"
OTHER_SHARING: Final = "it shares objects with other names than it did, or no longer shares any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """One location of a state.

    version: see `execution/trace.py`; for a name, after a `+`, which objects it shares with older names.
    attributes: of a library, those that steps have set. unseen: why its content cannot be compared. untried: why it
    is not known yet whether a copy is equal. foretold: why a copy will not be equal. Each is empty where it does not
    apply.
    """

    location: Location
    version: Version
    attributes: tuple[str, ...] = ()
    unseen: str = ""
    untried: str = ""
    foretold: str = ""

    @property
    def content(self) -> str:
        """The version without what it shares with others."""
        return self.version.partition("+")[0]

    @property
    def sharing(self) -> str:
        """Which objects it shares with older names; empty for none."""
        return self.version.partition("+")[2]

    @property
    def spoken(self) -> str:
        """Its name for people."""
        key = key_of(self.location)
        match kind_of(self.location):
            case "file":
                return f"file {key}"
            case "hidden":
                return f"the state of {key}"
            case "module" if self.attributes:
                return ", ".join(f"{key}.{attribute}" for attribute in self.attributes[:MOST_NAMED])
            case "module":
                return f"module {key}"
        return key


def differences(
    expected: Sequence[Indexed], found: Mapping[Location, Indexed], *, ordered: bool = True
) -> tuple[str, ...]:
    """Differences between a state and its copy, a line each.

    expected: the state, names in the order of the namespace. found: the same locations of the copy, without missing
    ones. ordered: whether the names must be in the same order.
    """
    lines = [_line(each, reason) for each in expected if (reason := _difference(each, found))]
    if ordered and (order := _order(expected, found)) is not None:
        lines.append(order)
    uncompared = [each for each in expected if _is_uncompared(each, found)]
    if uncompared:
        lines.append(f"not compared with the original: {_list(each.spoken for each in uncompared)}")
    return tuple(lines)


def _line(each: Indexed, reason: str) -> str:
    return f"{each.spoken}: {reason}"


def _difference(each: Indexed, found: Mapping[Location, Indexed]) -> str:
    """Why the copy differs from the original there; empty if it does not, or that cannot be known."""
    copy = found.get(each.location)
    if copy is None:
        return (each.foretold or "it is not there") if each.version != ABSENT else ""
    comparable = not copy.unseen and (not each.unseen or bool(each.attributes))
    if comparable and each.content != copy.content:
        return each.foretold or OTHER_CONTENT
    if each.sharing != copy.sharing:
        return each.foretold or OTHER_SHARING
    # Names were tried with the same pickles. Other predictions were guesses.
    tried = kind_of(each.location) == "name" and each.foretold != OTHER_SHARING
    return each.foretold if tried or not comparable else ""


def _is_uncompared(each: Indexed, found: Mapping[Location, Indexed]) -> bool:
    copy = found.get(each.location)
    if copy is None or _difference(each, found):
        return False
    return bool(each.unseen or copy.unseen)


def _order(expected: Iterable[Indexed], found: Mapping[Location, Indexed]) -> str | None:
    """The difference in the order of the names in both, if there is one."""
    wanted = [
        each.location for each in expected if kind_of(each.location) == "name" and each.location in found
    ]
    there = [each for each in found if each in set(wanted)]
    return None if wanted == there else "the names are in another order"


def _list(names: Iterable[str]) -> str:
    named = list(names)
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"{', '.join(named[:MOST_NAMED])}{more}"


def from_message(message: checkpoint_pb2.Indexed) -> Indexed:
    return Indexed(
        location=Location(message.location),
        version=Version(message.version),
        attributes=tuple(message.attributes),
        unseen=message.unseen,
        untried=message.untried,
        foretold=message.foretold,
    )


def fill(message: checkpoint_pb2.Indexed, indexed: Indexed) -> None:
    message.location, message.version = utf8_text(indexed.location), utf8_text(indexed.version)
    message.attributes.extend(utf8_texts(indexed.attributes))
    message.unseen = utf8_text(indexed.unseen[:MAX_REASON])
    message.untried = utf8_text(indexed.untried[:MAX_REASON])
    message.foretold = utf8_text(indexed.foretold[:MAX_REASON])
