"""What is counted and recorded of one runtime while it works."""

from __future__ import annotations

import hashlib
import time
from typing import Self

from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Decision, EgressLedger
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.tenancy.audit_events import (
    CodeSummary,
    EventBuffer,
    EventOrigin,
    NetworkAuditEvent,
    cell_audit_event,
    code_of,
)
from cenote_worker.tenancy.machine_quotas import MachineQuotas, SharedCounter, StoredBytes
from cenote_worker.tenancy.shared_quota import SharedQuota
from cenote_worker.wire import policies


class RuntimeUsage:
    """The usage of one runtime of one tenant. stored: see StoredBytes."""

    def __init__(
        self,
        tenant: str,
        runtime: str,
        policy: SandboxPolicy,
        trail: EventBuffer,
        quotas: MachineQuotas,
        stored: StoredBytes,
    ) -> None:
        self.trail = trail
        self.origin = EventOrigin(tenant=tenant, runtime=runtime, policy=policy_digest(policy))
        self.cells = quotas.tally(tenant, SharedQuota.CELLS)
        self._tally = quotas.tally(tenant, SharedQuota.STORED)
        self._stored = stored
        self._quotas = quotas

    def watch(self, ledger: EgressLedger | None) -> None:
        """Records the decisions of the runtime's proxy from now on."""
        if ledger is not None:
            ledger.witness = self._decided

    def cell(self, code: str, token: str) -> CellEntry:
        """token: id of the token used."""
        return CellEntry(self, code_of(code), token)

    def upload(self, size: int) -> None:
        """A value of so many bytes is being received from a client. Raises QuotaExceededError."""
        tenant = self.origin.tenant
        self._tally.take(size, lambda: self._stored(tenant) + self._quotas.states(tenant))

    def uploaded(self, size: int) -> None:
        """It was received, or will not be."""
        self._tally.release(size)

    def _decided(self, decision: Decision, passed: int | None) -> None:
        self.trail.note(NetworkAuditEvent(origin=self.origin, decision=decision, passed=passed))


class CellEntry:
    """A cell that may be about to run: counted from `admit` on, until it ends. See UsageEntry."""

    def __init__(self, books: RuntimeUsage, code: CodeSummary, token: str) -> None:
        self._books = books
        self._code = code
        self.token = token
        self._counted: SharedCounter | None = None

    def admit(self) -> None:
        """See UsageEntry. Raises QuotaExceededError."""
        self._books.cells.take(1)
        self._counted = self._books.cells

    def __enter__(self) -> Self:
        """A context for code that may admit the cell and then fail: a failure ends the count."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._drop()

    def _drop(self) -> None:
        """The cell does not run, or not any more. Dropping twice is fine."""
        counted, self._counted = self._counted, None
        if counted is not None:
            counted.release(1)

    def ended(self, outcome: Outcome) -> None:
        """See UsageEntry. Anything but a result means that nothing ran."""
        self._drop()
        if isinstance(outcome, ExecutionResult):
            deed = cell_audit_event(self._books.origin, self.token, self._code, time.time(), outcome)
            self._books.trail.note(deed)


def policy_digest(policy: SandboxPolicy) -> str:
    """SHA-256 of the policy without secrets: from a digest, a short password could be guessed."""
    message = policies.without_secrets(policies.from_policy(policy)).SerializeToString(deterministic=True)
    return hashlib.sha256(message).hexdigest()


def unrecorded_usage(runtime: str, policy: SandboxPolicy, quotas: MachineQuotas) -> RuntimeUsage:
    """The usage of a runtime without a platform: it has no reader, so nothing is recorded."""
    return RuntimeUsage("", runtime, policy, EventBuffer("", room=0), quotas, lambda _tenant: 0)
