"""What is counted and noted of one runtime while it works."""

from __future__ import annotations

import hashlib
import time
from typing import Self

from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Decision, Ledger
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.tenancy.deeds import Code, NetworkDeed, Origin, cell_deed, code_of
from cenote_worker.tenancy.machine_quotas import MachineQuotas, Stored
from cenote_worker.tenancy.shared_quota import SharedQuota
from cenote_worker.tenancy.tally import Tally
from cenote_worker.tenancy.trail import Trail
from cenote_worker.wire import policies


class Books:
    """Of one runtime of one tenant. stored: see Stored."""

    def __init__(
        self,
        tenant: str,
        runtime: str,
        policy: SandboxPolicy,
        trail: Trail,
        quotas: MachineQuotas,
        stored: Stored,
    ) -> None:
        self.trail = trail
        self.origin = Origin(tenant=tenant, runtime=runtime, policy=policy_digest(policy))
        self.cells = quotas.tally(tenant, SharedQuota.CELLS)
        self._tally = quotas.tally(tenant, SharedQuota.STORED)
        self._stored = stored
        self._quotas = quotas

    def watch(self, ledger: Ledger | None) -> None:
        """Notes what the runtime's proxy decides from now on."""
        if ledger is not None:
            ledger.witness = self._decided

    def cell(self, code: str, token: str) -> CellEntry:
        """token: id of the one that it comes with."""
        return CellEntry(self, code_of(code), token)

    def upload(self, size: int) -> None:
        """A value of so many bytes is on its way from a client. Raises QuotaExceededError."""
        tenant = self.origin.tenant
        self._tally.take(size, lambda: self._stored(tenant) + self._quotas.states(tenant))

    def uploaded(self, size: int) -> None:
        """It has come, or will not."""
        self._tally.release(size)

    def _decided(self, decision: Decision, passed: int | None) -> None:
        self.trail.note(NetworkDeed(origin=self.origin, decision=decision, passed=passed))


class CellEntry:
    """A cell that may be about to run: counted from `admit` on, until it ends. See Entry."""

    def __init__(self, books: Books, code: Code, token: str) -> None:
        self._books = books
        self._code = code
        self.token = token
        self._counted: Tally | None = None

    def admit(self) -> None:
        """See Entry. Raises QuotaExceededError."""
        self._books.cells.take(1)
        self._counted = self._books.cells

    def __enter__(self) -> Self:
        """Around what may admit it and then fail: in that case it is not counted any more."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._drop()

    def _drop(self) -> None:
        """It does not run, or not any more. Dropping twice is fine."""
        counted, self._counted = self._counted, None
        if counted is not None:
            counted.release(1)

    def ended(self, outcome: Outcome) -> None:
        """See Entry. Anything but a result says that nothing ran."""
        self._drop()
        if isinstance(outcome, ExecutionResult):
            deed = cell_deed(self._books.origin, self.token, self._code, time.time(), outcome)
            self._books.trail.note(deed)


def policy_digest(policy: SandboxPolicy) -> str:
    """SHA-256 of the policy as others may see it: from a digest, a short password can be guessed."""
    message = policies.without_secrets(policies.to_message(policy)).SerializeToString(deterministic=True)
    return hashlib.sha256(message).hexdigest()


def no_books(runtime: str, policy: SandboxPolicy, quotas: MachineQuotas) -> Books:
    """For a runtime of no platform: nobody reads what is noted, and of that nothing is kept."""
    return Books("", runtime, policy, Trail("", room=0), quotas, lambda _tenant: 0)
