"""Teams, as whoever starts processes for them sees them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from cenote.gateway.database import Database
from cenote.gateway.orchestrators.places import Share, share_of
from cenote.gateway.orchestrators.works import Kind
from cenote.gateway.teams.news import NewsTable
from cenote.gateway.teams.runs import Runs
from cenote.gateway.teams.table import Teams
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import TeamId, TenantId
from cenote_worker.supervisor.start import machine_memory


class TeamWorks:
    """See Works."""

    kind: Final[Kind] = "team"
    can_make_room: Final = False
    """A task of agents has no middle to stop at."""

    def __init__(self, database: Database) -> None:
        self._teams = Teams(database)
        self._runs = Runs(database)
        self._news = NewsTable(database)

    @property
    def share(self) -> Share:
        return share_of(machine_memory(), tenants=2)

    def at_work(self) -> Sequence[str]:
        return self._runs.teams_at_work()

    def is_open(self, work: str) -> bool:
        return bool(self._runs.open(TeamId(work)))

    def tenant(self, work: str) -> TenantId:
        return self._teams.of_all(TeamId(work)).tenant

    def progress(self, work: str) -> Hashable:
        team = TeamId(work)
        try:
            self._teams.of_all(team)
        except UnknownEntryError:
            return ()
        return (self._news.kept(team)[1], *(run.number for run in self._runs.open(team)))

    def stuck(self, work: str, reason: str) -> None:
        self._runs.give_up(TeamId(work), reason)
