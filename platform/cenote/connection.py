"""A platform, as a script holds it: which runtimes there are, and the way to each."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from cenote.runtime.core.backend import RetentionOptions
from cenote.runtime.remote.address import PORT, Destination, destination
from cenote_security.errors import UsageError, WeakerRuntimeError
from cenote_security.policy import SandboxPolicy, weakness_of_joined
from cenote_security.rules import SecurityChecker

if TYPE_CHECKING:  # runtimes take a second to load, which jobs need not wait for
    from cenote.jobs import Jobs
    from cenote.platform_team import PlatformTeam, TeamStatus
    from cenote.runtime.core.runtime_core import RuntimeCore
    from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
    from cenote.runtime.faces.sync import PythonRuntime
    from cenote.runtime.remote.environments import PlatformEnvironments
    from cenote.runtime.remote.platform_client import PlatformClient
    from cenote.team.budget import Budget
    from cenote_proto.v1 import platform_pb2, reference_pb2

T = TypeVar("T")

LOCAL: Final = f"localhost:{PORT}"

PATIENCE: Final = 40.0
"""Seconds for a question to the gateway, which has a shorter deadline of its own."""

State = Literal["starting", "ready", "lost", "hibernated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """A runtime of a platform. created: seconds since the epoch. clients: attached now. reason: why it is lost.

    steps: the number of the last step that was begun; a branch counts on from where its parent stood.

    durable, and the state `hibernated`: see Platform.runtime. parent: of a branch, the name of the runtime that it
    was forked from; both have the steps up to `parent_step`.
    """

    id: str
    name: str
    node: str
    state: State
    policy: SandboxPolicy
    created: float
    clients: int
    steps: int
    reason: str
    durable: bool = False
    parent: str = ""
    parent_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A machine of a platform, for tokens that may see it. references: shared values, `reference_bytes` in all.

    silent: it does not answer now, and nothing else is known of it.
    """

    id: str
    address: str
    runtimes: int
    references: int
    reference_bytes: int
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformInfo:
    """What a platform says of itself, and of who asks."""

    software: str
    tenant: str
    scopes: tuple[str, ...]
    nodes: tuple[NodeInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceInfo:
    """A shared value on a platform. type, shape, description: of the value. size: bytes.

    held_by: some of its `holders`, by the names that they have chosen. runtime: the id of the one that shared it,
    after its `step`. Times are seconds since the epoch; `expires` is 0 for a value that is kept until it is released.
    """

    id: str
    type: str
    shape: tuple[int, ...] | None
    description: str
    size: int
    node: str
    holders: int
    held_by: tuple[str, ...]
    created: float
    expires: float
    runtime: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLogRecord:
    """An entry of the audit log. at: seconds since the epoch. token, runtime: ids; empty where there is none."""

    number: int
    at: float
    kind: str
    token: str
    runtime: str
    facts: Mapping[str, Any]
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecords:
    """A page of the audit log, the newest first. following: for the next page; empty at the beginning of the log."""

    records: tuple[AuditLogRecord, ...]
    following: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """Whether the audit log is as it was written. entries, hash: of the last good entry.

    broken: the number of the first entry that is not as it was written, for this `reason`; 0 if all are. at: when it
    was verified, in seconds since the epoch.
    """

    entries: int
    hash: str
    broken: int
    reason: str
    at: float


def connect(address: str | None = None, token: str | None = None, *, wait: float | None = None) -> Platform:
    """The platform whose gateway listens at `address`. Nothing is sent before the first call.

    address: `host:port`; by default what CENOTE_ADDRESS says, else this machine's. token: by default what
    CENOTE_TOKEN or the token file of `cenote up` says. wait: seconds for which its calls wait for a platform that
    does not answer and was there before, as while its gateway is started again, which they log; by default what
    CENOTE_WAIT says, else 30. Raises UsageError for what is no address.
    """
    if wait is not None and not (isinstance(wait, int | float) and 0 <= wait < math.inf):
        raise UsageError(f"wait is a number of seconds, 0 for none, not {wait!r:.100}")
    target = destination(address, token, wait)
    if target is None and address is not None:
        raise UsageError(f"there is no platform at {address!r}; leave the address out, or write host:port")
    return Platform(target or _checked(destination(LOCAL, token, wait)))


class Platform:
    """Calls raise UnavailableError when no platform answers, and RejectedError or a subclass for what is refused."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    @property
    def address(self) -> str:
        return self._destination.address

    def runtime(
        self,
        name: str,
        *,
        sandbox: SandboxPolicy | None = None,
        security_checker: SecurityChecker | None = None,
        attach: bool = True,
        durable: bool = False,
        hibernate_after: float = 0.0,
        partial: bool = False,
        audit_patches: float = 0.0,
    ) -> PythonRuntime:
        """The runtime of that name, made if there is none. It is there when this returns, and outlives `close`.

        sandbox: for one that is made; one that exists keeps its own, and WeakerRuntimeError is raised if that allows
        more. An Environment in it is built on the platform first, which is waited for.
        attach: join one that exists; else NameExistsError is raised.
        durable: all that a call has changed is stored before it is answered, so nothing is lost, whatever dies; a
        call raises NotDurableError where it cannot be. hibernate_after: seconds without any call, after which its
        jail ends and its state is stored; the next call has it again. partial: join it without what cannot be given
        back of it, which IncompleteRestoreError names else. audit_patches: of this client; see PythonRuntime.
        """
        from cenote.runtime.faces.sync import PythonRuntime

        kept = RetentionOptions(durable=durable, hibernate_after=hibernate_after, partial=partial)
        return PythonRuntime.holding(
            self._started(name, sandbox, security_checker, attach, kept, audit_patches)
        )

    async def async_runtime(
        self,
        name: str,
        *,
        sandbox: SandboxPolicy | None = None,
        security_checker: SecurityChecker | None = None,
        attach: bool = True,
        durable: bool = False,
        hibernate_after: float = 0.0,
        partial: bool = False,
        audit_patches: float = 0.0,
    ) -> AsyncPythonRuntime:
        """As `runtime`, for code that awaits."""
        from cenote.runtime.faces.asynchronous import AsyncPythonRuntime

        kept = RetentionOptions(durable=durable, hibernate_after=hibernate_after, partial=partial)
        core = await asyncio.to_thread(
            self._started, name, sandbox, security_checker, attach, kept, audit_patches
        )
        return AsyncPythonRuntime.holding(core)

    def runtimes(self) -> list[RuntimeInfo]:
        """All runtimes that the token's tenant has."""
        return [_runtime(message) for message in self._ask(self._client().list())]

    def find(self, name: str) -> RuntimeInfo:
        """One of them, by name or id. Raises UnknownRuntimeError."""
        return _runtime(self._ask(self._client().describe(name, look=True)))

    def restore(self, name: str, checkpoint: int | str) -> PythonRuntime:
        """The durable runtime of that name, gone back to what its `checkpoint` has stored, by number or label.

        Nothing is lost: its present state is stored before. Raises UnknownRuntimeError and UnknownEntryError,
        IncompleteRestoreError when something would be missing, UnavailableError while a call is under way.
        """
        self.find(name)
        runtime = self.runtime(name)
        try:
            runtime.core.checkpoints.go_back(checkpoint)
        except BaseException:
            runtime.close()
            raise
        return runtime

    def delete(self, name: str) -> None:
        """Ends a runtime, by name or id, and notifies its clients. Raises UnknownRuntimeError."""
        self._ask(self._client().delete(name))

    def team(
        self,
        name: str,
        *,
        budget: Budget | None = None,
        sandbox: SandboxPolicy | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> PlatformTeam:
        """The team of that name, whose loop runs on the platform: give it members and set it to work, or follow it.

        budget: for all that it ever does. sandbox: of members that have none. secrets: keys for its models, by names
        that ModelSpec calls them by; the platform keeps them in a private file and never shows them.
        """
        from cenote.platform_team import PlatformTeam

        return PlatformTeam(self._destination, name, budget=budget, sandbox=sandbox, secrets=secrets)

    def teams(self) -> list[TeamStatus]:
        """All teams that the token's tenant has."""
        from cenote.platform_team.team import status_of
        from cenote.runtime.remote.team_client import TeamClient

        return [status_of(message) for message in self._ask(TeamClient(self._destination).all())]

    @property
    def jobs(self) -> Jobs:
        """Its batch jobs: `submit`, `get`, `list`."""
        from cenote.jobs import Jobs

        return Jobs(self._destination)

    @property
    def environments(self) -> PlatformEnvironments:
        """The tenant's packages for runtimes: `build`, `get`, `list`, `remove`."""
        from cenote.runtime.remote.environments import PlatformEnvironments

        return PlatformEnvironments(self._destination)

    def references(self, *, after: str = "", limit: int = 100) -> list[ReferenceInfo]:
        """A page of the shared values of the token's tenant by id, those after this one."""
        return [_reference(one) for one in self._ask(self._client().list_references(after, limit)).references]

    def audit(
        self, *, page: str = "", limit: int = 100, kind: str = "", refused: bool = False, runtime: str = ""
    ) -> AuditRecords:
        """A page of the tenant's part of the audit log, the newest first. Takes a token with the scope `admin`.

        page: `following` of an earlier page. kind: only kinds that begin with this, such as `network`. refused: only
        what was refused. runtime: only what is about this one, by id. A page may have fewer records than `limit`, or
        none, and not be the last.
        """
        from cenote_proto.scalars import make
        from cenote_proto.v1 import platform_pb2

        request = make(
            platform_pb2.ListAuditRequest,
            page=page,
            limit=limit,
            kind=kind,
            refused=refused,
            runtime=runtime,
        )
        reply = self._ask(self._client().list_audit(request))
        return AuditRecords(records=tuple(map(_audited, reply.records)), following=reply.next_page)

    def verify_audit(self) -> AuditVerification:
        """Has the platform check its whole audit log. Takes a token with the scope `admin`."""
        found = self._ask(self._client().verify_audit())
        return AuditVerification(
            entries=found.entries,
            hash=found.hash,
            broken=found.broken,
            reason=found.reason,
            at=found.verified,
        )

    def describe(self) -> PlatformInfo:
        """What it is, and what the token may do there."""
        return _platform(self._ask(self._client().about()))

    def __repr__(self) -> str:
        return f"<Platform at {self.address}>"

    def _started(
        self,
        name: str,
        sandbox: SandboxPolicy | None,
        checker: SecurityChecker | None,
        attach: bool,
        kept: RetentionOptions,
        audit_patches: float,
    ) -> RuntimeCore:
        from cenote.runtime.core.auditing import auditor_of
        from cenote.runtime.core.backends import named
        from cenote.runtime.core.runtime_core import RuntimeCore
        from cenote.runtime.remote.environments import with_built_environment

        if not isinstance(name, str) or not name:
            raise UsageError(
                "a runtime of a platform has a name; PythonRuntime(address=...) makes one without"
            )
        if sandbox is not None:
            sandbox = with_built_environment(self._destination, sandbox)
        backend, auditor = named(self._destination, name, attach=attach, kept=kept), auditor_of(audit_patches)
        core = RuntimeCore((), (), (), checker, sandbox or SandboxPolicy(), name, backend, auditor=auditor)
        core.start()
        if sandbox is not None and (found := weakness_of_joined(core.policy, sandbox)) is not None:
            core.close()
            raise WeakerRuntimeError(name, found.field, found.wanted, found.allowed)
        return core

    def _client(self) -> PlatformClient:
        from cenote.runtime.remote.platform_client import client_of

        return client_of(self._destination)

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        from cenote.runtime.remote.background import background

        return background().wait(question, PATIENCE + self._destination.wait, "answer")


def _checked(target: Destination | None) -> Destination:
    assert target is not None
    return target


def _runtime(message: platform_pb2.RuntimeDescription) -> RuntimeInfo:
    from cenote_worker.wire.policies import to_policy

    states: tuple[State, ...] = ("starting", "ready", "lost", "hibernated")
    return RuntimeInfo(
        id=message.id,
        name=message.name,
        node=message.node,
        state=states[message.state] if message.state < len(states) else "lost",
        policy=to_policy(message.policy),
        created=message.created,
        clients=message.clients,
        steps=message.steps,
        reason=message.reason,
        durable=message.durable,
        parent=message.origin.name,
        parent_step=message.origin.step,
    )


def _platform(message: platform_pb2.PlatformDescription) -> PlatformInfo:
    nodes = tuple(
        NodeInfo(
            id=node.id,
            address=node.address,
            runtimes=node.runtimes,
            references=node.references,
            reference_bytes=node.reference_bytes,
            silent=node.silent,
        )
        for node in message.nodes
    )
    return PlatformInfo(
        software=message.software, tenant=message.tenant, scopes=tuple(message.scopes), nodes=nodes
    )


def _reference(message: reference_pb2.ReferenceDescription) -> ReferenceInfo:
    from cenote_worker.supervisor.frame_parser import read_info

    info = read_info(message.info)
    return ReferenceInfo(
        id=message.id,
        type=info.type,
        shape=info.shape,
        description=info.description,
        size=message.size,
        node=message.node,
        holders=message.holders,
        held_by=tuple(message.held_by),
        created=message.created,
        expires=message.expires,
        runtime=message.runtime,
        step=message.step,
    )


def _audited(message: platform_pb2.AuditRecord) -> AuditLogRecord:
    return AuditLogRecord(
        number=message.number,
        at=message.at,
        kind=message.kind,
        token=message.token,
        runtime=message.runtime,
        facts=json.loads(message.facts),
        hash=message.hash,
    )
