"""What a supervisor writes to its runtime's journal while it works, and how a successor finds it.

The journal is a port: `NO_JOURNAL` is for jails that end with their process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cenote_worker.execution.results import StreamName
from cenote_worker.supervisor.account.jail_account import UsageBaseline
from cenote_worker.supervisor.exit_reason import JailExit, WorkerRestart
from cenote_worker.supervisor.requests import JailRequest
from cenote_worker.transport.packets import Packet, receive_packet

Piece = tuple[StreamName, str] | Packet
"""Output of a request, or a packet as its jail sent it: something displayed, an answer."""


class JournalPort(Protocol):
    """The journal of one jail. Called under its supervisor's lock, before what is noted has any effect."""

    def asked(self, number: int, request: JailRequest, started: float, begun: UsageBaseline) -> None:
        """A request is about to be sent."""

    def sent(self) -> None:
        """The request has left."""

    def unsent(self) -> None:
        """The request will never leave."""

    def receive(self, sock: socket.socket) -> Packet | None:
        """As `receive_packet` does."""

    def printed(self, stream: StreamName, text: str) -> None:
        """Output came through a pipe."""

    def interrupted(self, at: float, *, expired: bool) -> None:
        """The running cell is about to be interrupted, because its time is over or for another reason."""

    def moved(self, step: int, setback: WorkerRestart | None) -> None:
        """The namespace is at the end of another step. setback: if no client requested that."""

    def rest(self) -> None:
        """Nothing is under way just now: a time to tidy up."""

    def mourned(self) -> None:
        """The runtime's owner was informed of the jail's end, or requested it."""

    def ended(self, death: JailExit) -> None:
        """The jail is gone, and every waiting caller was informed."""


class NoJournal:
    """The JournalPort of a jail that ends with its process."""

    def asked(self, number: int, request: JailRequest, started: float, begun: UsageBaseline) -> None:
        pass

    def sent(self) -> None:
        pass

    def unsent(self) -> None:
        pass

    def receive(self, sock: socket.socket) -> Packet | None:
        return receive_packet(sock)

    def printed(self, stream: StreamName, text: str) -> None:
        pass

    def interrupted(self, at: float, *, expired: bool) -> None:
        pass

    def moved(self, step: int, setback: WorkerRestart | None) -> None:
        pass

    def rest(self) -> None:
        pass

    def mourned(self) -> None:
        pass

    def ended(self, death: JailExit) -> None:
        pass


NO_JOURNAL: Final[JournalPort] = NoJournal()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that a former supervisor sent, or was about to send.

    number: of the request in its jail. begun: the counters when it began. started: as CellClock has it, like the next
    two. sent: False when it is unknown whether it left. missing: number of printed characters that are not stored.
    heard: the output and answers that came after those, in order.
    """

    number: int
    begun: UsageBaseline
    request: JailRequest
    started: float
    interrupted_at: float | None
    expired: bool
    sent: bool
    missing: int
    heard: Sequence[Piece]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorState:
    """The state in which a former supervisor of a jail left it.

    ready: whether the jail has reported ready. number: of the last request. begun: the counters when that began.
    answered: earlier requests whose answers no client has received, in order. background: what was printed after
    them. head: the step whose end the namespace is at. setback: one that no client was informed of yet. skip: called
    before anything is read from the frames socket. is_stored: see `Supervisor.is_stored`.
    """

    ready: bool
    number: int
    begun: UsageBaseline
    underway: PendingRequest | None
    background: Sequence[Piece]
    skip: Callable[[], None]
    is_stored: Callable[[], bool]
    answered: Sequence[PendingRequest] = ()
    head: int = 0
    setback: WorkerRestart | None = None
