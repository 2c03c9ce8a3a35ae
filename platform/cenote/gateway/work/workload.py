"""What processes of the platform work on, such as teams and jobs, as those that start the processes see it.

Two processes may work on the same for a moment. A fence lets the later one alone write.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, Protocol

from cenote.gateway.store.database import Database
from cenote.gateway.work.worker_slots import SlotLimits
from cenote_security.errors import UnavailableError
from cenote_security.ids import TenantId

Kind = Literal["team", "job"]

MAX_FAILURES: Final = 5
"""Processes, one after the other, that end without having got any further; then what they work on is stuck."""

LOOK_EVERY: Final = 1.0
"""Seconds between two looks whether a process is to make room, or a database is there again that was away."""

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 60.0
"""Seconds before another process is started, doubled with each that gets no further."""


class SupersededError(UnavailableError):
    """What was worked on was deleted, or another process works on it."""

    def __str__(self) -> str:
        return "another process works on this now, or it was deleted"


class Workload(Protocol):
    """All works of one kind, by id, in the gateway's database. Calls are thread-safe."""

    @property
    def kind(self) -> Kind: ...

    @property
    def share(self) -> SlotLimits:
        """How many are worked on at once; others wait."""

    @property
    def can_make_room(self) -> bool:
        """Whether its loop ends in the middle when it is asked to."""

    def at_work(self) -> Sequence[str]:
        """All tenants': those that have something to do."""

    def is_open(self, work: str) -> bool:
        """Whether it has something to do."""

    def tenant(self, work: str) -> TenantId:
        """Raises UnknownEntryError."""

    def progress(self, work: str) -> Hashable:
        """Differs once it has got any further."""

    def stuck(self, work: str, reason: str) -> None:
        """Nobody gets any further. What has nothing to do after that is left alone, all else is tried on."""


def pause_after(failures: int) -> float:
    """Seconds."""
    return float(min(FIRST_PAUSE * (2 ** min(failures, 20) - 1), LONGEST_PAUSE))


def works_of(kind: Kind, database: Database) -> Workload:
    """Loads what a kind takes, and nothing of the others."""
    if kind == "team":
        from cenote.gateway.teams.tables import TeamWorkload

        return TeamWorkload(database)
    from cenote.gateway.jobs.tables import JobWorkload

    return JobWorkload(database)


_BEGIN: Final[dict[Kind, str]] = {
    "team": "UPDATE teams SET epoch = epoch + 1 WHERE id = ? RETURNING epoch",
    "job": "UPDATE jobs SET epoch = epoch + 1 WHERE id = ? RETURNING epoch",
}
_STAY: Final[dict[Kind, str]] = {
    "team": "UPDATE teams SET epoch = epoch WHERE id = ? AND epoch = ?",
    "job": "UPDATE jobs SET epoch = epoch WHERE id = ? AND epoch = ?",
}


class Fence:
    """Around the writes of one process. Making one shuts its predecessors out."""

    def __init__(self, database: Database, kind: Kind, work: str) -> None:
        """Raises SupersededError for a work that is not there any more."""
        self._database = database
        self._kind = kind
        self._work = work
        with database.transaction():
            row = database.row(_BEGIN[kind], work)
        if row is None:
            raise SupersededError
        self._epoch = int(row["epoch"])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All of it, or nothing. Raises SupersededError where a later process has begun, or the work is gone."""
        with self._database.transaction():
            if not self._database.execute(_STAY[self._kind], self._work, self._epoch):
                raise SupersededError
            yield
