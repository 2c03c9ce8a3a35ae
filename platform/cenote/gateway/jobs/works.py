"""Jobs, as whoever starts processes for them sees them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from cenote.gateway.database import Database
from cenote.gateway.jobs.table import Jobs
from cenote.gateway.jobs.tasks import Tasks
from cenote.gateway.orchestrators.places import Share, share_of
from cenote.gateway.orchestrators.works import Kind
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import JobId, TenantId
from cenote_worker.supervisor.start import machine_memory


class JobWorks:
    """See Works."""

    kind: Final[Kind] = "job"
    can_make_room: Final = True

    def __init__(self, database: Database) -> None:
        self._jobs = Jobs(database)
        self._tasks = Tasks(database)

    @property
    def share(self) -> Share:
        return share_of(machine_memory(), tenants=4)

    def at_work(self) -> Sequence[str]:
        return self._jobs.at_work()

    def is_open(self, work: str) -> bool:
        try:
            return self._jobs.of_all(JobId(work)).state in ("waiting", "running")
        except UnknownEntryError:
            return False

    def tenant(self, work: str) -> TenantId:
        return self._jobs.of_all(JobId(work)).tenant

    def progress(self, work: str) -> Hashable:
        """What its tasks came to, and how often they were lost: each of these is bounded, so that it ends."""
        return self._tasks.marks(JobId(work))

    def stuck(self, work: str, reason: str) -> None:
        """A task that takes each process along is bounded by its losses, and no other one has failed for that."""
        self._jobs.tell(JobId(work), reason)
