"""What a runtime records for the process that takes it over, as the runtime sees it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.runtime.injection import Injection
from cenote_worker.supervisor.channels.host_calls import HostLog, NoHostLog
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.supervisor.start import start_jail
from cenote_worker.supervisor.supervisor import Supervisor


class HandoverLog(Protocol):
    """Each call comes before the recorded event takes effect. None raises when the descriptor store is
    unavailable."""

    def hold(self, injection: Injection) -> None:
        """An injection is about to be sent. It gets a number."""

    def release(self, injection: Injection) -> None:
        """The injection was refused, or a later one replaces it."""

    def accept(self, injection: Injection | None, superseded: Sequence[Injection]) -> None:
        """Every later jail begins with this injection, if there is one, and no longer with the superseded ones."""

    def filled(self, head: int, steps: int) -> None:
        """The jail that was started last has the values that the runtime's jails begin with.

        head: the step whose state that is. steps: how many steps have had a number.
        """

    def host_channel(self, ours: socket.socket, theirs: socket.socket) -> HostLog:
        """The jail is about to get its end of the host channel."""

    def settled(self, key: str, outcome: Outcome) -> None:
        """A request with a key has an outcome."""

    def start_beside(
        self, policy: SandboxPolicy, ledger: EgressLedger | None, ends_at: float | None
    ) -> Supervisor:
        """A jail that is not recorded: it ends with this process."""

    def patch_begun(self, key: str, head: int, steps: int) -> None:
        """A patch of this key is about to be applied. head: the step whose state it begins with. steps: so far."""

    def set_aside(self, *, intact: bool) -> None:
        """The present jail waits while the patch continues in the next one. A successor ends the next one, and
        continues with the waiting one, until the patch is settled. intact: the waiting jail is still in the state
        that the patch began with.
        """

    def taken_back(self) -> None:
        """The waiting jail is about to be the runtime's again."""

    def stays(self, over: Callable[[], None]) -> None:
        """The next jail stays. over: ends the waiting one; called as soon as no successor would continue with it."""

    def close(self) -> None:
        """The runtime was closed: there is nothing to take over."""

    def leave(self) -> None:
        """This process has stopped: another may take over."""


class NoHandoverLog:
    """The HandoverLog of a runtime that ends with its process."""

    def hold(self, injection: Injection) -> None:
        pass

    def release(self, injection: Injection) -> None:
        pass

    def accept(self, injection: Injection | None, superseded: Sequence[Injection]) -> None:
        pass

    def filled(self, head: int, steps: int) -> None:
        pass

    def host_channel(self, _ours: socket.socket, _theirs: socket.socket) -> HostLog:
        return NoHostLog()

    def settled(self, key: str, outcome: Outcome) -> None:
        pass

    def start_beside(
        self, policy: SandboxPolicy, ledger: EgressLedger | None, ends_at: float | None
    ) -> Supervisor:
        return start_jail(policy, ledger, ends_at)

    def patch_begun(self, key: str, head: int, steps: int) -> None:
        pass

    def set_aside(self, *, intact: bool) -> None:
        pass

    def taken_back(self) -> None:
        pass

    def stays(self, over: Callable[[], None]) -> None:
        over()

    def close(self) -> None:
        pass

    def leave(self) -> None:
        pass


NO_HANDOVER_LOG: Final[HandoverLog] = NoHandoverLog()
