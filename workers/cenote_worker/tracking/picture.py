"""What one name's value was when it was looked at last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import Location, Version
from cenote_worker.tracking.budget import TOO_LARGE, Budget, TooDear
from cenote_worker.tracking.facts import NOTHING, Facts
from cenote_worker.tracking.graph import Graph, Stretch
from cenote_worker.tracking.handlers import Handlers
from cenote_worker.tracking.untouched import Untouched

__builtins__ = BUILTINS

_random = os.urandom
_NOTHING: Final[Mapping[int, int]] = {}
_NO_CLASSES: Final[Mapping[int, type]] = {}
_UNOWNED: Final[Mapping[int, Stretch]] = {}
_NOWHERE: Final[frozenset[Location]] = frozenset()


UNSEEN: Final = "?"
"""How versions begin of what cannot be looked into: they can be equal only as tokens."""


_UNIQUE: Final = 8
"""Random bytes of a version that only one look has given."""


def fresh() -> Version:
    """A version that nobody else has, in whatever fork of the process."""
    return Version(f"{UNSEEN}{_random(_UNIQUE).hex()}")


def is_unique(version: Version) -> bool:
    """Whether another look at the very same would give another one."""
    seen = version.partition("+")[0]
    return seen.startswith(UNSEEN) and len(seen) == len(UNSEEN) + 2 * _UNIQUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """See `Graph`. identity: id of the value itself. stays: why it cannot be carried over, as far as can be seen from
    here. constant: nothing in it can ever change."""

    identity: int
    version: Version
    holds: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    covered: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    owned: Mapping[int, Stretch] = field(default_factory=lambda: _UNOWNED)
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

    def shows(self, other: Picture) -> bool:
        """Whether it shows memory of arrays that the other holds."""
        return any(
            first < end and start < last for first, last in self.shown for start, end in other.owned.values()
        )

    @property
    def constant(self) -> bool:
        return not (self.holds or self.covered or self.shown or self.opaque)


def picture_of(
    value: object,
    root: object,
    namespace: dict[str, object],
    own_modules: Mapping[str, ModuleType],
    handlers: Handlers,
    untouched: Untouched,
    budget: Budget,
) -> Picture:
    """root: the object itself, of which `value` may be a view; the one that is not described by its name."""
    graph = Graph(namespace, own_modules, untouched, budget)
    try:
        version = Version(graph.walk(value, root, handlers.of))
    except TooDear:
        graph.out_of_sight(TOO_LARGE)
    except Exception as error:  # a library that has been changed, or a value that another thread changes
        graph.out_of_sight(f"looking at it failed: {type(error).__name__}")
    return Picture(
        identity=id(root),
        version=fresh() if graph.opaque else Version(f"{UNSEEN}{version}") if graph.sealed else version,
        holds=graph.holds,
        covered=graph.covered,
        owned=graph.owned,
        shown=tuple(graph.shown),
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
