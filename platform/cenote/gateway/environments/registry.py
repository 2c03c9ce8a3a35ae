"""Tenants' environments from the request to the removal: names, quotas, machines, audit entries.

One is built on one machine, and then has its lock. From this each other machine builds the same in the background.
What is to be done is in the table, so a gateway that is started again goes on with it; a machine whose agent was
killed is asked again, and begins again.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from cenote.gateway.audit.events import Subject, environment_changed
from cenote.gateway.environments.table import EnvironmentDefinition, EnvironmentRow
from cenote.gateway.machines.nodes import MachineStatus, Nodes
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.names import check_name
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Hold, Quota
from cenote_proto.scalars import make
from cenote_proto.v1 import job_pb2, platform_pb2, runtime_pb2, team_pb2
from cenote_security.auth.tokens import Scope
from cenote_security.environment import Environment, is_digest
from cenote_security.errors import (
    EntryExistsError,
    QuotaExceededError,
    RejectedError,
    UnavailableError,
    UnknownEntryError,
    UsageError,
)
from cenote_security.ids import EnvironmentId, TenantId
from cenote_worker.environments.packages import PackageLock, checked_lock
from cenote_worker.node.environment_builds import BuildOrder, BuildReport
from cenote_worker.node.environment_jail import BuildSettings

log = logging.getLogger("cenote.environments")

MAX_DEFINITION: Final = 2 * 2**20
"""Bytes of requirements or of a lock."""

MAX_NAMED: Final = 100
"""Environments of one tenant."""

_NO_LIMIT: Final = 2**62
_AGAIN: Final = 600.0
"""Seconds after which a machine that could not build a copy is asked again."""


class EnvironmentRegistry:
    """Calls block, from any thread. settings: what the operator allows. common: those of the operator, by name."""

    def __init__(
        self,
        stores: Stores,
        nodes: Nodes,
        settings: BuildSettings,
        common: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._table = stores.environments
        self._nodes = nodes
        self._settings = settings
        self._common = dict(common)
        self._clock = clock
        self._lock = threading.Lock()
        """Names are taken and given up one at a time."""
        self._progress: dict[EnvironmentId, str] = {}
        self._places: dict[EnvironmentId, str] = {}
        self._not_before: dict[tuple[str, str], float] = {}

    # -- clients --

    def build(
        self, principal: Principal, request: platform_pb2.BuildEnvironmentRequest
    ) -> platform_pb2.EnvironmentDescription:
        """Raises ScopeMissingError, RejectedError, UsageError, EntryExistsError, QuotaExceededError."""
        principal.require(Scope.RUNTIMES_WRITE)
        if not self._settings.allows:
            raise RejectedError(
                "this platform builds no environments for its tenants; its operator allows it with `cenote up "
                "--environment-index URL`"
            )
        _check_python(request.python)
        definition = _definition(request)
        name = check_name("environment", request.name or definition.own_name)
        if is_digest(name) or name in self._common:
            raise UsageError(f"{name!r} is an environment of the operator; choose another name")
        with self._lock:
            with suppress(UnknownEntryError):
                return self._described(self._known(principal, name, definition))
            if len(self._table.digests(principal.tenant)) >= MAX_NAMED:
                raise RejectedError(f"a tenant has up to {MAX_NAMED} environments; remove some")
            row = self._table.add(principal.tenant, name, definition, principal.token)
            try:
                # The size is known in the end. Until then it holds enough for a tenant without room to be refused.
                self._stores.reserve(
                    Hold(key=row.id, tenant=row.tenant, amounts={Quota.ENVIRONMENTS: 1}, lasting=True)
                )
                self._record(row, "requested", ", ".join(definition.requirements) or "a lock")
            except BaseException:
                self._forget(row)
                raise
        return self._described(row)

    def _known(self, principal: Principal, name: str, definition: EnvironmentDefinition) -> EnvironmentRow:
        """The one that the request has begun before. Raises UnknownEntryError, EntryExistsError."""
        row = self._table.find(principal.tenant, name)
        if row.definition != definition:
            raise EntryExistsError("environment", name)
        if row.state == "failed":
            self._table.begin_again(row)
        return self._table.find(principal.tenant, name)

    def get(self, principal: Principal, name: str) -> platform_pb2.EnvironmentDescription:
        """Raises UnknownEntryError."""
        principal.require(Scope.RUNTIMES_READ)
        if name in self._common:
            return self._described_common(name)
        return self._described(self._table.find(principal.tenant, name))

    def page(
        self, principal: Principal, after: str, limit: int
    ) -> tuple[list[platform_pb2.EnvironmentDescription], str]:
        """One page by name, those of the operator first, and where the next page begins."""
        principal.require(Scope.RUNTIMES_READ)
        limit = min(limit or MAX_NAMED, MAX_NAMED)
        rows = self._table.of(principal.tenant, after=after, limit=limit)
        common = [] if after else [self._described_common(name) for name in sorted(self._common)]
        return [*common, *map(self._described, rows)], rows[-1].name if len(rows) == limit else ""

    def remove(self, principal: Principal, name: str) -> None:
        """Raises UnknownEntryError, UsageError while something of the tenant has it."""
        principal.require(Scope.RUNTIMES_WRITE)
        if name in self._common:
            raise RejectedError(f"{name!r} is an environment of the operator, who alone can remove it")
        with self._lock:
            row = self._table.find(principal.tenant, name)
            if row.digest and (user := next(self._users(row), "")):
                raise UsageError(f"environment {name!r} is in use by {user}; remove that first")
            self._record(row, "removed", "", principal.token)
            self._table.remove(row)
            self._progress.pop(row.id, None)

    def own(self, tenant: TenantId) -> Mapping[str, str]:
        """Digests by name; empty for those that are not ready."""
        return self._table.digests(tenant)

    def _users(self, row: EnvironmentRow) -> Iterator[str]:
        """What would have no packages any more. The tenant's other name for equal content keeps it."""
        others = [digest for name, digest in self._table.digests(row.tenant).items() if name != row.name]
        if row.digest in others:
            return
        meant = (row.digest, row.name)
        for runtime in self._stores.runtimes.of(row.tenant):
            if runtime_pb2.Policy.FromString(runtime.policy).environment in meant:
                yield f"the runtime {runtime.name!r}"
        for team in self._stores.teams.of(row.tenant):
            told = team_pb2.TeamDefinition.FromString(team.definition)
            if any(
                sandbox.environment in meant for sandbox in (told.sandbox, *(m.sandbox for m in told.members))
            ):
                yield f"the team {team.name!r}"
        for job in self._stores.jobs.of(row.tenant):
            told_of_job = job_pb2.JobDefinition.FromString(job.definition)
            if job.state in ("waiting", "running") and told_of_job.sandbox.environment in meant:
                yield f"the job {job.name!r}"

    # -- building, on the gateway's beat --

    def tick(self) -> None:
        """Goes on with all builds, one of each tenant. Does not wait for any."""
        seen = set[TenantId]()
        for row in (*self._table.in_state("leaving"), *self._table.in_state("building")):
            if row.tenant not in seen:
                seen.add(row.tenant)
                try:
                    self._go_on(row)
                except UnavailableError as error:  # such as a machine that does not answer: it is asked again
                    self._progress[row.id] = str(error)

    def _go_on(self, row: EnvironmentRow) -> None:
        node = self._place(row)
        limit = self._stores.quotas.limits(row.tenant).get(Quota.ENVIRONMENTS, _NO_LIMIT)
        order = BuildOrder(
            key=row.id,
            requirements=row.definition.requirements,
            lock=row.definition.lock,
            settings=self._settings,
            room=max(limit - self._stores.quotas.used(row.tenant)[Quota.ENVIRONMENTS], 0),
        )
        report = self._nodes.build_environment(node, order)
        self._progress[row.id] = report.progress
        if report.state == "building":
            return
        self._places.pop(row.id, None)
        self._progress.pop(row.id, None)
        if row.state == "leaving":
            if report.built is not None:
                self._table.leave(row, report.built.digest)
            self._forget(row)
        elif report.built is None:
            self._fail(row, report.error)
        else:
            self._finish(row, report)

    def _place(self, row: EnvironmentRow) -> str:
        """The machine that builds it: the same as before, as long as it answers."""
        here = [node for node in self._nodes.describe() if not node.silent and not node.draining]
        if not here:
            raise UnavailableError("no machine answers now; it is built when one does")
        place = self._places.get(row.id, "")
        if place not in [node.id for node in here]:
            busy = list(self._places.values())
            place = self._places[row.id] = min(here, key=lambda node: busy.count(node.id)).id
        return place

    def _finish(self, row: EnvironmentRow, report: BuildReport) -> None:
        assert report.built is not None, "it is ready"
        built = report.built
        lock = row.definition.lock or PackageLock(file="requirements.txt", text=built.lock)
        try:
            self._stores.quotas.settle(row.id, {Quota.ENVIRONMENTS: built.size})
        except QuotaExceededError as error:
            self._table.leave(row, built.digest)
            self._fail(row, str(error))
            return
        if self._table.built(row, built, lock):
            self._record(self._table.of_all(row.id), "built", ", ".join(built.packages))
        # Else it was removed meanwhile: the next look finds what was built.

    def _fail(self, row: EnvironmentRow, error: str) -> None:
        self._table.failed(row, error)
        self._record(row, "failed", error)

    # -- copies and remains --

    def sweep(self) -> None:
        """Has each machine build what others have, and remove what no tenant has any more."""
        nodes = [node for node in self._nodes.describe() if not node.silent]
        ready = {row.digest: row for row in self._table.in_state("ready")}
        for node in nodes:
            lacking = [digest for digest in ready if digest not in node.environments]
            if not node.draining:
                for digest in lacking:
                    with suppress(UnavailableError):  # the next sweep asks again
                        self._copy(node.id, ready[digest])
        for row in self._table.in_state("removed"):
            with suppress(UnavailableError):
                if (
                    not row.digest
                    or row.digest in {*ready, *self._common.values()}
                    or self._gone(row.digest, nodes)
                ):
                    self._forget(row)

    def _forget(self, row: EnvironmentRow) -> None:
        self._stores.quotas.release(row.id)
        self._table.forget(row)

    def _copy(self, node: str, row: EnvironmentRow) -> None:
        if self._clock() < self._not_before.get((node, row.digest), 0.0):
            return
        order = BuildOrder(key=f"copy {row.digest}", requirements=(), lock=row.lock, settings=self._settings)
        report = self._nodes.build_environment(node, order)
        if report.state == "failed":
            self._not_before[node, row.digest] = self._clock() + _AGAIN
            log.warning("machine %s cannot build environment %s: %s", node, row.digest[:12], report.error)

    def _gone(self, digest: str, nodes: Sequence[MachineStatus]) -> bool:
        found = [node.id for node in nodes if digest in node.environments]
        return all([self._nodes.remove_environment(node, digest) for node in found])

    # -- words --

    def _record(self, row: EnvironmentRow, change: str, detail: str, token: str = "") -> None:
        subject = Subject(tenant=row.tenant, token=token or row.token)
        self._stores.recorder.record(
            environment_changed(subject, change, row.name, row.digest, detail)
        ).result()

    def _described(self, row: EnvironmentRow) -> platform_pb2.EnvironmentDescription:
        return make(
            platform_pb2.EnvironmentDescription,
            name=row.name,
            state=platform_pb2.EnvironmentDescription.State.Value(row.state.upper()),
            progress=self._progress.get(row.id, "") if row.state == "building" else "",
            error=row.error,
            digest=row.digest,
            packages=row.packages,
            size=row.size,
            created=row.created,
        )

    def _described_common(self, name: str) -> platform_pb2.EnvironmentDescription:
        return make(
            platform_pb2.EnvironmentDescription,
            name=name,
            state=platform_pb2.EnvironmentDescription.READY,
            digest=self._common[name],
            common=True,
        )


def _check_python(wanted: str) -> None:
    running = ".".join(map(str, sys.version_info[:3]))
    if wanted and not f"{running}.".startswith(f"{wanted}."):
        raise UsageError(
            f"runtimes of this platform are of Python {running}, not {wanted}; leave python out, or ask the operator "
            f"for a platform with that version"
        )


def _definition(request: platform_pb2.BuildEnvironmentRequest) -> EnvironmentDefinition:
    """Raises UsageError, UnfitEnvironmentError."""
    if request.ByteSize() > MAX_DEFINITION:
        raise UsageError(f"the packages of an environment are named in up to {MAX_DEFINITION} bytes")
    if bool(request.lock) == bool(request.requirements):
        raise UsageError("an environment has requirements or a lock; give one of them")
    if request.lock:
        return EnvironmentDefinition(lock=checked_lock(request.lock_file, request.lock))
    return EnvironmentDefinition(requirements=tuple(Environment(list(request.requirements)).requirements))
