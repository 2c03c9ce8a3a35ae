"""Variables of a whole team: references under names, each new one a version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from cenote.runtime import ObjectReference
from cenote.runtime.injectables import check_name
from cenote.team.bell import Bell
from cenote.team.errors import UnknownTeamNameError, VariablesFullError
from cenote_security.errors import UsageError

MAX_NAMES = 1_000
"""Variables of one team. Each may hold a descriptor of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamVariable:
    """One version of a variable. Versions count from 1. author: who put it there; empty for the program itself."""

    name: str
    version: int
    reference: ObjectReference
    author: str = ""


class TeamVariables:
    """The newest version of each variable, from any thread. Older versions live on where they are in use.

    limit: bytes of all newest versions together: they are held outside of all jails, and jails put them there.
    on_change: called after each new version.
    """

    def __init__(self, limit: int = 2**33, on_change: Callable[[], None] | None = None) -> None:
        self._limit = limit
        self._newest: dict[str, TeamVariable] = {}
        self._versions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._changed = Bell()
        self._on_change = on_change

    def put(self, name: str, reference: ObjectReference, *, author: str = "") -> int:
        """A new version of a variable, new or not; gives its number. Raises UsageError, VariablesFullError."""
        check_name(name, "team variable")
        if not isinstance(reference, ObjectReference):
            raise UsageError(
                f"a team variable is an ObjectReference, as runtime.share(name) gives, not {type(reference).__name__}"
            )
        with self._lock:
            self._check_room(name, reference.size)
            version = self._versions[name] = self._versions.get(name, 0) + 1
            variable = TeamVariable(name=name, version=version, reference=reference, author=author)
            self._newest[name] = variable
        if self._on_change is not None:
            self._on_change()
        self._changed.ring()
        return version

    def _check_room(self, name: str, size: int) -> None:
        others = [variable.reference.size for variable in self._newest.values() if variable.name != name]
        if sum(others) + size > self._limit:
            raise VariablesFullError("bytes", self._limit)
        if len(others) >= MAX_NAMES:
            raise VariablesFullError("names", MAX_NAMES)

    def restore(self, name: str, version: int, reference: ObjectReference | None, author: str) -> None:
        """A version from before a restart. None: the value is lost; its number is not used again all the same."""
        self._versions[name] = version
        if reference is not None:
            variable = TeamVariable(name=name, version=version, reference=reference, author=author)
            self._newest[name] = variable

    def get(self, name: str) -> TeamVariable:
        """The newest version. Raises UnknownTeamNameError."""
        with self._lock:
            found, names = self._newest.get(name), tuple(self._newest)
        if found is None:
            raise UnknownTeamNameError("variable", name, names)
        return found

    def newest(self) -> tuple[TeamVariable, ...]:
        """The newest version of each variable."""
        with self._lock:
            return tuple(self._newest.values())

    async def changed(self, name: str, after: int = 0) -> TeamVariable:
        """The newest version of a variable, as soon as there is one above `after`."""
        check_name(name, "team variable")
        return await self._changed.until(lambda: self._above(name, after))

    def _above(self, name: str, version: int) -> TeamVariable | None:
        with self._lock:
            found = self._newest.get(name)
        return found if found is not None and found.version > version else None
