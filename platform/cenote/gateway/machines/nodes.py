"""The port to the machines: where runtimes are made, found and ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cenote_security.ids import RuntimeId, TenantId
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
class NodeStatus:
    """What may be said of a node. address: of a ReferenceService that has the node's references, for components.

    silent: it does not answer now, and nothing else is known of it. processors: that its runtimes may use.
    """

    id: str
    address: str
    actors: int = 0
    runtimes: int = 0
    references: int = 0
    reference_bytes: int = 0
    silent: bool = False
    processors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """How a runtime is. reason: why, of one that is lost. clients: attached now, or a moment ago.

    lost_for: seconds, where it may come back. hibernated: its state is stored, and it has no jail.
    """

    state: Literal["ready", "lost", "hibernated"] = "ready"
    reason: str = ""
    clients: int = 0
    steps: int = 0
    lost_for: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOrder:
    """A runtime that is to be made. The fields: see Nodes.create."""

    runtime: RuntimeId
    tenant: TenantId
    policy: bytes = field(repr=False)
    lease: float
    keeping: RuntimeStorage


class Nodes(Protocol):
    """Calls are thread-safe and may block. All raise CenoteErrors only.

    What serves a runtime opens to capabilities signed with that runtime's key, and its ReferenceService also to those
    for `cenote_security.auth.capability.REFERENCES`.
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
        """Makes a runtime; a durable one goes on from what is stored of it. Asked again, the same.

        policy: serialised runtime_pb2.Policy, checked before. lease: seconds after which the runtime ends when it has
        had no client for so long; 0 for never. node: where; empty for wherever there is most room.
        Raises IncompleteRestoreError and other CheckpointErrors, UnavailableError for a node that is not there.
        """

    def fork(self, parent: RuntimeId, branches: Sequence[RuntimeOrder], order: ForkOrder) -> ForkPoint:
        """Makes runtimes that begin with a state of the parent, which is served, beside it: all of them or none.

        What is left of some where a process is killed meanwhile goes with `delete`. Raises UnknownRuntimeError,
        what `cenote_worker.runtime.state.branches.copied` raises, UnavailableError.
        """

    def locate(self, runtime: RuntimeId) -> RuntimeLocation:
        """Where it is now; it may have moved after a failure. Raises UnknownRuntimeError."""

    def delete(self, runtime: RuntimeId) -> None:
        """Ends it here; what is stored of it stays. Raises UnknownRuntimeError."""

    def rest(self, runtime: RuntimeId) -> None:
        """Has a durable runtime sleep, which takes as long as the code in its jail likes.

        Raises UnknownRuntimeError, and what Refill.rest raises.
        """

    def release(self, runtime: RuntimeId) -> None:
        """Leaves one that sleeps to its store. Raises UnknownRuntimeError, UnavailableError for one that does not."""

    def describe(self) -> list[NodeStatus]: ...

    def runtime(self, runtime: RuntimeId) -> RuntimeStatus:
        """Raises UnknownRuntimeError for one that no node has, such as one whose lease has run out."""

    def clear(self, on_record: Callable[[], Collection[RuntimeId]]) -> None:
        """Ends what a machine that was away has brought back, and nobody can name any more: it was deleted
        meanwhile, or made elsewhere. One that could not be cleared is tried again the next time.

        on_record: gives all runtimes that are. It is asked behind a look at the machine: they are on record first.
        """

    def limit(self, limits: Mapping[TenantId, Limits]) -> None:
        """What these tenants may use up, all machines together, instead of what they might before.

        Each machine gets an equal part, see `parted`.
        """

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        """What was done on each machine, by source; None for one that does not answer.

        written: by source, up to where all is on record.
        """

    def reference_address(self, reference: str) -> str:
        """A server whose ReferenceService has the value, or can bring it, for components.

        Raises UnknownReferenceError.
        """
