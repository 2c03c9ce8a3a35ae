"""Bringing injections into jails, with the line that their host calls come back on."""

from __future__ import annotations

import socket
from collections.abc import Callable

from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.host_calls import HostCallNotes
from cenote_worker.hosted.asks import STATE_TIMEOUT
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.legacy import Legacy
from cenote_worker.hosted.listeners import Delivery
from cenote_worker.hosted.refusals import as_error
from cenote_worker.supervisor.edge import RefusedReply
from cenote_worker.supervisor.host_line import HostHandler, HostLine
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Listener
from cenote_worker.supervisor.supervisor import Supervisor


class Deliveries:
    """Of one runtime. hosts: carries out what its jails call outside. notes: the record of that."""

    def __init__(
        self, policy: SandboxPolicy, hosts: HostHandler, notes: HostCallNotes, legacy: Legacy
    ) -> None:
        self._limit = 2 * policy.memory_bytes
        self._hosts = hosts
        self._notes = notes
        self._legacy = legacy

    def deliver(self, supervisor: Supervisor, injection: Injection) -> None:
        """Waits until it is there. Raises the error that says why it cannot be."""
        delivery = Delivery()
        request = self.request(supervisor, injection, delivery, replace=True)
        request.timeout = STATE_TIMEOUT
        supervisor.submit(request)
        outcome = delivery.outcomes.get()
        if isinstance(outcome, RefusedReply):
            raise as_error(outcome, ", ".join(injection.names))
        if isinstance(outcome, Exception):
            raise UnavailableError(f"the runtime's jail ended while it was filled: {outcome}") from outcome

    def request(
        self,
        supervisor: Supervisor,
        injection: Injection,
        listener: Listener,
        *,
        replace: bool,
        key: str = "",
    ) -> JailRequest:
        """What asks the jail to take it in; to be submitted."""
        descriptors: list[int] = []
        self._notes.offered(injection.hosts)
        owned: list[Callable[[], None]] = []
        message = injection.request(replace=replace, descriptors=descriptors, owned=owned)
        if (
            injection.hosts
        ):  # each time: a process that has come of an earlier state has not got what another got
            theirs = self._far_end(supervisor)
            descriptors.append(theirs.fileno())
            owned.append(theirs.close)
        return JailRequest(
            Ask.INJECT,
            message,
            listener,
            descriptors,
            owned,
            key=key,
            injection=injection.number,
            seat=injection.seat,
        )

    def _far_end(self, supervisor: Supervisor) -> socket.socket:
        """The jail's end of its line, to be closed behind the request."""
        found = supervisor.hosts.far_end()
        if found is not None:
            return found
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = self._legacy.host_channel(ours, theirs)
        line = HostLine(ours, self._hosts, self._limit, supervisor.new_assembly(), log, witness=self._notes)
        supervisor.hosts.open(line, theirs)
        return theirs.dup()
