"""What a gateway keeps, opened: the database with its tables, the audit log with its writer, the master key."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from typing import Final, Self

from cenote.gateway.access import Access
from cenote.gateway.audit.chain import START
from cenote.gateway.audit.log import KEY_BYTES as AUDIT_KEY_BYTES
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.recorder import Recorder
from cenote.gateway.database import Database
from cenote.gateway.database_place import database_place
from cenote.gateway.jobs.table import Jobs
from cenote.gateway.jobs.tasks import Tasks
from cenote.gateway.notices import Notices
from cenote.gateway.quota import Hold, Quota, shown, unit_of
from cenote.gateway.quota_book import QuotaBook
from cenote.gateway.runtimes import Runtimes
from cenote.gateway.state_folder import StateFolder
from cenote.gateway.states import States
from cenote.gateway.teams.news import NewsTable
from cenote.gateway.teams.runs import Runs
from cenote.gateway.teams.table import Teams
from cenote.gateway.tenants import Tenants
from cenote.gateway.tokens import Tokens
from cenote_security.capability import KEY_BYTES, MasterKey
from cenote_security.errors import CenoteError, QuotaExceededError
from cenote_security.ids import JobId, RuntimeId, TeamId
from cenote_security.secret_files import kept_secret
from cenote_worker.counts import Counts

MOST_NAMED: Final = 3
"""Holders of a quota that a refusal names."""


class Stores:
    """Of one gateway; a second one is refused: at the same folder by the audit log's lock, at the same database of a
    server by the database's."""

    def __init__(self, folder: StateFolder, states: States | None = None, *, audit_keep: float = 0.0) -> None:
        """Makes what is missing. states: by default in a folder of this one. audit_keep: see AuditLog.

        Raises SecretFileError, UnavailableError, AuditBrokenError; DatabaseUnavailableError also where there was a
        database, which is lost.
        """
        self.counts = Counts()
        """Of this gateway, with what its machines have counted since it was started."""
        folder.make()
        self.folder = folder.path
        self.states = states or States(str(folder.store))
        if states is None:
            self.states.check_store()
        with ExitStack() as opened:
            key = kept_secret(folder.audit_key, lambda: secrets.token_bytes(AUDIT_KEY_BYTES))
            self.audit_log = log = AuditLog(folder.audit, key, keep=audit_keep)
            self.audit_folder = folder.audit
            opened.callback(log.close)
            self.recorder = opened.enter_context(Recorder(log))
            self.master_key = MasterKey(
                secret=kept_secret(folder.master_key, lambda: secrets.token_bytes(KEY_BYTES))
            )
            self.database = database = opened.enter_context(
                Database(database_place(folder), lost=_remedy(folder) if log.mark != START else "")
            )
            database.claim()
            self.tenants = Tenants(database)
            self.tokens = Tokens(database)
            self.notices = Notices(database)
            self.runtimes = Runtimes(database, self.master_key.for_storage())
            self.quotas = QuotaBook(database)
            self.teams = Teams(database)
            self.team_runs = Runs(database)
            self.team_news = NewsTable(database)
            self.jobs = Jobs(database)
            self.job_tasks = Tasks(database)
            self.release_holds()
            self.access = Access(self.tokens, self.runtimes, self.master_key)
            self._opened = opened.pop_all()

    def release_holds(self) -> None:
        """Of what is gone."""
        self.quotas.release_all_but(lambda: {*self.runtimes.ids(), *self.teams.ids(), *self.jobs.ids()})

    def reserve(self, hold: Hold) -> None:
        """A part of the quotas. Raises QuotaExceededError, which names what has them; see QuotaBook.reserve."""
        try:
            self.quotas.reserve(hold)
        except QuotaExceededError as error:
            quota = Quota(error.quota)
            holders = self.quotas.holders(hold.tenant, quota)
            if not holders:
                raise
            shares = [self._share(one, quota) for one in holders[:MOST_NAMED]]
            more = f" and {len(holders) - len(shares)} more" if len(holders) > len(shares) else ""
            error.remedy = f"it is held by {', '.join(shares)}{more}: {error.remedy}"
            error.args = (*error.args[:-1], error.remedy)
            raise

    def _share(self, hold: Hold, quota: Quota) -> str:
        amount = f" ({shown(quota, hold.amounts[quota])})" if unit_of(quota) else ""
        return f"{self._name(hold.key)}{amount}"

    def _name(self, key: str) -> str:
        """What its owner calls a thing that holds quotas."""
        with suppress(CenoteError):
            return self.runtimes.name_of_any(RuntimeId(key))
        with suppress(CenoteError):
            return self.teams.of_all(TeamId(key)).name
        with suppress(CenoteError):
            return self.jobs.of_all(JobId(key)).name or key
        return key

    def close(self) -> None:
        """Closing twice is fine."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _remedy(folder: StateFolder) -> str:
    return f"put it back from a backup, or move {str(folder.path)!r} away to begin anew"
