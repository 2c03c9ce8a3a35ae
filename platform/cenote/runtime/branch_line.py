"""Branches of a runtime that is elsewhere: made next to its jail, held from here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cenote.runtime.backend import Backend
from cenote.runtime.host_desk import HostDesk
from cenote_worker.hosted.branching import ForkOrder, ForkPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchThere:
    """A branch that is served. name: of the runtime. open: the way to it, for the client that has made it."""

    name: str
    point: ForkPoint
    open: Callable[[HostDesk], Backend]


@runtime_checkable
class BranchLine(Protocol):
    """A Backend that forks."""

    def fork(self, order: ForkOrder, count: int, names: Sequence[str]) -> list[BranchThere]:
        """So many branches, or none is left. Waits for no cell.

        names: of each, if they are to outlive this client.

        Raises UsageError for whoever is not the owner, UnavailableError, IncompleteForkError, NotKeptError and what
        a platform refuses with.
        """

    def fork_point(self) -> ForkPoint | None:
        """Where this runtime was forked from another, if it was."""
