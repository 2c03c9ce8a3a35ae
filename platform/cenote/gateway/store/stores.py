"""The opened stores of a gateway: the database with its tables, the audit log with its writer, the master key.

`Access` maps a caller's credentials to rights at a runtime: a token at the gateway, a capability at an actor.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, Self

from cenote.gateway.audit.entries import START
from cenote.gateway.audit.log import KEY_BYTES as AUDIT_KEY_BYTES
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import AuditChecks
from cenote.gateway.audit.recorder import AuditRecorder, Notices
from cenote.gateway.environments.table import EnvironmentTable
from cenote.gateway.jobs.tables import JobTable, TaskTable
from cenote.gateway.store.database import Database, database_place
from cenote.gateway.store.quotas import QuotaBook
from cenote.gateway.store.runtimes import RuntimeRecord, Runtimes
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.state_locations import StateLocations
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote.gateway.teams.tables import TeamEventTable, TeamRunTable, TeamTable
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Hold, Quota, shown, unit_of
from cenote_security.auth.capability import KEY_BYTES, REFERENCES, Capability, CapabilityRight, MasterKey
from cenote_security.auth.secret_files import kept_secret
from cenote_security.auth.tokens import Scope
from cenote_security.errors import CenoteError, QuotaExceededError, RejectedError
from cenote_security.ids import EnvironmentId, JobId, RuntimeId, TeamId
from cenote_worker.process.metrics import Counts
from cenote_worker.serving.rights import Rights, to_rights

CAPABILITY_SECONDS: Final = 300
"""Long enough to connect, short enough that a revoked token is soon worth nothing anywhere."""

RIGHTS: Final = {
    Scope.RUNTIMES_READ: CapabilityRight.READ,
    Scope.RUNTIMES_WRITE: CapabilityRight.RUN,
    Scope.REFERENCES: CapabilityRight.SHARE,
}
"""The right of each scope at a runtime. Other scopes give none there."""


class Access:
    """Used by the gateway's own servers, and for clients that connect to an actor directly."""

    def __init__(
        self, tokens: Tokens, runtimes: Runtimes, key: MasterKey, clock: Callable[[], float] = time.time
    ) -> None:
        self._tokens = tokens
        self._runtimes = runtimes
        self._key = key
        self._clock = clock

    def authorise(self, token: str, runtime: str | None) -> Rights:
        """The rights of a token at a runtime of its own tenant, by id; without one, at the tenant's references.

        Raises NotAuthenticatedError; UnknownRuntimeError for a runtime that its tenant does not have.
        """
        principal = self._tokens.authenticate(token)
        if runtime is not None:
            self._runtimes.by_id(principal.tenant, RuntimeId(runtime))
        return to_rights(principal.tenant, _rights(principal), principal.token)

    def capability(self, principal: Principal, runtime: RuntimeRecord) -> tuple[str, int]:
        """A capability for this principal at the runtime's actor, and its expiry in seconds since the epoch.

        Raises RejectedError when no scope of the token gives a right at a runtime.
        """
        rights = _rights(principal)
        if not rights or runtime.tenant != principal.tenant:
            raise RejectedError(
                "this token opens no runtime; use one with the scope 'runtimes:read' at least"
            )
        return self._signed(principal, runtime.id, rights)

    def reference_capability(self, principal: Principal) -> str:
        """A capability for the tenant's references, on any node. Raises ScopeMissingError."""
        principal.require(Scope.REFERENCES)
        return self._signed(principal, REFERENCES, frozenset((CapabilityRight.SHARE,)))[0]

    def _signed(
        self, principal: Principal, runtime: RuntimeId, rights: frozenset[CapabilityRight]
    ) -> tuple[str, int]:
        now = int(self._clock())
        capability = Capability(
            tenant=principal.tenant,
            runtime=runtime,
            holder=principal.token,
            rights=rights,
            issued=now,
            expires=now + CAPABILITY_SECONDS,
        )
        return self._key.for_runtime(runtime).sign(capability), capability.expires


def _rights(principal: Principal) -> frozenset[CapabilityRight]:
    return frozenset(right for scope, right in RIGHTS.items() if scope in principal.scopes)


MOST_NAMED: Final = 3
"""Holders of a quota that a refusal lists."""


class Stores:
    """The stores of one gateway. A second gateway is refused: at the same folder by the audit log's lock, at the same
    database server by the database's.
    """

    def __init__(
        self, folder: StateFolder, states: StateLocations | None = None, *, audit_keep: float = 0.0
    ) -> None:
        """Creates what is missing. states: by default in a folder of this one. audit_keep: see AuditLog.

        Raises SecretFileError, UnavailableError, AuditBrokenError; DatabaseUnavailableError also where the former
        database is lost.
        """
        self.counts = Counts()
        """Counters of this gateway, with those of its machines since it was started."""
        folder.make()
        self.folder = folder.path
        self.states = states or StateLocations(str(folder.store))
        if states is None:
            self.states.check_store()
        with ExitStack() as opened:
            key = kept_secret(folder.audit_key, lambda: secrets.token_bytes(AUDIT_KEY_BYTES))
            self.audit_log = log = AuditLog(folder.audit, key, keep=audit_keep)
            self.audit_folder = folder.audit
            self.audit_checks = AuditChecks(folder.audit, key)
            opened.callback(log.close)
            self.recorder = opened.enter_context(AuditRecorder(log))
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
            self.teams = TeamTable(database)
            self.team_runs = TeamRunTable(database)
            self.team_news = TeamEventTable(database)
            self.jobs = JobTable(database)
            self.job_tasks = TaskTable(database)
            self.environments = EnvironmentTable(database)
            self.release_holds()
            self.access = Access(self.tokens, self.runtimes, self.master_key)
            self._opened = opened.pop_all()

    def release_holds(self) -> None:
        """Releases the holds of objects that are gone."""
        self.quotas.release_all_but(
            lambda: {
                *self.runtimes.ids(),
                *self.teams.ids(),
                *self.jobs.ids(),
                *self.environments.ids(),
            }
        )

    def reserve(self, hold: Hold) -> None:
        """Reserves quotas. Raises QuotaExceededError, which names the largest holders; see QuotaBook.reserve."""
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
        """The owner's name for an object that holds quotas."""
        with suppress(CenoteError):
            return self.runtimes.name_of_any(RuntimeId(key))
        with suppress(CenoteError):
            return self.teams.of_all(TeamId(key)).name
        with suppress(CenoteError):
            return self.jobs.of_all(JobId(key)).name or key
        with suppress(CenoteError):
            return self.environments.of_all(EnvironmentId(key)).name
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
