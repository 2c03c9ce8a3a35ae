"""The port to the machines: where runtimes are made, found and ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cenote_security.ids import RuntimeId, TenantId
from cenote_worker.node.environment_builds import BuildOrder, BuildReport
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.runtime.state.storage import RuntimeStorage
from cenote_worker.serving.endpoints import Endpoints
from cenote_worker.tenancy.audit_events import EventBatch
from cenote_worker.tenancy.shared_quota import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLocation:
    """Where a runtime is served: the id of its node, and where its RuntimeService is reached there."""

    node: str
    doors: Endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStatus:
    """The status of a node. address: of a ReferenceService that has the node's references, for components.

    silent: it does not answer now, and nothing else is known. processors: that its runtimes may use. draining: see
    Nodes.drain. places: runtimes that it takes at most; None for any number. environments: digests of those that
    are built there.
    """

    id: str
    address: str
    actors: int = 0
    runtimes: int = 0
    references: int = 0
    reference_bytes: int = 0
    silent: bool = False
    processors: int = 0
    draining: bool = False
    places: int | None = None
    environments: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """The status of a runtime. reason: of a lost one. clients: attached now, or a moment ago.

    lost_for: seconds, where it may come back. hibernated: its state is stored, and it has no jail.
    """

    state: Literal["ready", "lost", "hibernated"] = "ready"
    reason: str = ""
    clients: int = 0
    steps: int = 0
    lost_for: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOrder:
    """A runtime that is to be made. For the fields see Nodes.create."""

    runtime: RuntimeId
    tenant: TenantId
    policy: bytes = field(repr=False)
    lease: float
    keeping: RuntimeStorage


class Nodes(Protocol):
    """Calls are thread-safe and may block. All raise only CenoteErrors.

    The server of a runtime accepts capabilities signed with that runtime's key; its ReferenceService also accepts
    those for `cenote_security.auth.capability.REFERENCES`.
    """

    def create(
        self,
        runtime: RuntimeId,
        tenant: TenantId,
        policy: bytes,
        *,
        lease: float,
        keeping: RuntimeStorage,
        node: str = "",
    ) -> RuntimeLocation:
        """Makes a runtime; a durable one continues from its stored state. Idempotent.

        policy: serialised runtime_pb2.Policy, checked before. lease: seconds without a client after which the runtime
        ends; 0 for never. node: where; empty for the machine with most room of those that have its environment.
        Raises IncompleteRestoreError and other CheckpointErrors, UnavailableError for a node that has left,
        NoRoomError.
        """

    def want_room(self, runtimes: int) -> None:
        """Has the cluster add machines for so many runtimes that wait for room, instead of what was wanted before.
        0 withdraws it. Nothing happens where no machines are added.
        """

    @property
    def grows(self) -> bool:
        """Whether machines are added for what waits, so that at times there may be none."""

    def fork(self, parent: RuntimeId, branches: Sequence[RuntimeOrder], order: ForkOrder) -> ForkPoint:
        """Makes runtimes that begin with a state of the parent, which runs, on its node: all of them or none.

        If a process is killed meanwhile, `delete` removes the parts. Raises UnknownRuntimeError, what
        `cenote_worker.runtime.state.branches.copied` raises, UnavailableError.
        """

    def locate(self, runtime: RuntimeId) -> RuntimeLocation:
        """Where it is now; it may have moved after a failure. Raises UnknownRuntimeError."""

    def delete(self, runtime: RuntimeId) -> None:
        """Ends the runtime; its stored state stays. Raises UnknownRuntimeError."""

    def rest(self, runtime: RuntimeId) -> None:
        """Hibernates a durable runtime. The code in its jail decides how long that takes.

        Raises UnknownRuntimeError, and what Refill.rest raises.
        """

    def release(self, runtime: RuntimeId) -> None:
        """Removes a hibernated runtime from its node. Raises UnknownRuntimeError; UnavailableError if it is awake."""

    def drain(self, node: str, wanted: bool) -> dict[RuntimeId, bool]:
        """A drained node gets no new runtimes, and its durable ones leave it, each between two cells. Repeat the call
        until they have left. wanted: false ends that.

        Returns the runtimes that are still there, with whether they are durable. Raises UsageError where there is one
        machine alone, UnavailableError for a node that has left or does not answer.
        """

    def describe(self) -> list[MachineStatus]: ...

    def runtime(self, runtime: RuntimeId) -> RuntimeStatus:
        """Raises UnknownRuntimeError for one that no node has, such as one whose lease has run out."""

    def clear(self, on_record: Callable[[], Collection[RuntimeId]]) -> None:
        """Ends runtimes that a returning machine still has, and that were deleted or made elsewhere meanwhile. What
        could not be cleared is tried again next time.

        on_record: returns all recorded runtimes. It is called after a look at the machine, since runtimes are
        recorded before they are made.
        """

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        """Sets the limits of these tenants, all machines together, instead of the former ones.

        Each machine gets an equal part, see `parted`.
        """

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        """The audit events of each machine, by source; None for one that does not answer.

        written: by source, the number up to which all events are recorded.
        """

    def build_environment(self, node: str, order: BuildOrder) -> BuildReport:
        """Begins to build an environment on a node, or tells how far that is. Does not wait for it.

        Raises UnavailableError for a node that has left or does not answer.
        """

    def remove_environment(self, node: str, digest: str) -> bool:
        """Removes an environment from a node. False while it is in use there. Raises as `build_environment`."""

    def reference_address(self, reference: str) -> str:
        """A server whose ReferenceService has the value, or can fetch it, for components.

        Raises UnknownReferenceError.
        """
