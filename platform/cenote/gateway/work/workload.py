"""The work of the platform's processes, such as teams and jobs, as seen by the code that starts the processes.

Two processes may work on the same for a moment. A fence lets only the later one write.
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
"""Consecutive processes that end without progress; then their work is stuck."""

LOOK_EVERY: Final = 1.0
"""Seconds between two checks whether a process must make room, or an unavailable database is back."""

SWEEP_EVERY: Final = 2.0
"""Seconds between two checks for processes that are no longer needed; each takes some hundred megabytes."""

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 60.0
"""Maximum seconds before another process is started; the pause doubles with each one that makes no progress."""


class SupersededError(UnavailableError):
    """The work was deleted, or another process works on it."""

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
        """Whether its loop returns before its work is done when asked to."""

    def at_work(self) -> Sequence[str]:
        """Works of all tenants that have something to do."""

    def is_open(self, work: str) -> bool:
        """Whether it has something to do."""

    def tenant(self, work: str) -> TenantId:
        """Raises UnknownEntryError."""

    def expects_more(self) -> bool:
        """Whether a process is kept ready for work that does not exist yet."""

    def progress(self, work: str) -> Hashable:
        """A value that changes with each progress."""

    def stuck(self, work: str, reason: str) -> None:
        """Reports that processes make no progress. Work that is then over is left alone; other work is retried."""


def pause_after(failures: int) -> float:
    """Seconds."""
    return float(min(FIRST_PAUSE * (2 ** min(failures, 20) - 1), LONGEST_PAUSE))


def works_of(kind: Kind, database: Database) -> Workload:
    """Imports only what this kind needs."""
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
    """Guards the writes of one process. A new fence excludes its predecessors."""

    def __init__(self, database: Database, kind: Kind, work: str) -> None:
        """Raises SupersededError if the work no longer exists."""
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
        """A transaction. Raises SupersededError if a later process has begun, or the work no longer exists."""
        with self._database.transaction():
            if not self._database.execute(_STAY[self._kind], self._work, self._epoch):
                raise SupersededError
            yield
