"""The jails of a runtime: which one it has now, how a fresh one is made, and how injections reach it.

A fresh jail has the values that the runtime begins with, and none is made once the runtime is closed or its time is
over. The first injection of a host function opens the channel for its calls.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from cenote_security.errors import RuntimeClosedError, RuntimeExpiredError, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.environments.building import pinned
from cenote_worker.environments.store import EnvironmentStore
from cenote_worker.history.events import EnvironmentUsed
from cenote_worker.history.host_calls import HostCallNotes
from cenote_worker.history.step import START
from cenote_worker.process.metrics import STARTS
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.handover.handover_log import HandoverLog
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.injection_log import InjectionLog
from cenote_worker.runtime.jail_requests import STATE_TIMEOUT, as_error
from cenote_worker.runtime.recorder import StepRecorder, WaitingListener
from cenote_worker.runtime.state.state_source import FreshJailNeededError, StateSource
from cenote_worker.supervisor.channels.host_calls import HostCallChannel, HostHandler
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.frame_parser import RefusedReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import OWNER, AuthorSession, JailRequest, Listener
from cenote_worker.supervisor.supervisor import Supervisor

RESET: Final = JailExit(reason="reset", text="the owner of the runtime has reset it")


class CurrentJail:
    """Of one runtime. Callers have its `turn`; only `heard` and `lost` are called on any thread, without it."""

    def __init__(self, is_stored: Callable[[], bool]) -> None:
        """is_stored: see `Supervisor.is_stored`."""
        self._is_stored = is_stored
        self._supervisor: Supervisor | None = None
        self._relied: dict[AuthorSession, Supervisor | None] = {}
        """Each session's last jail, None during its takeover; no entry once the client knows of its end."""
        self._bereft: JailExit | None = None

    @property
    def supervisor(self) -> Supervisor | None:
        """The supervisor of the jail that runs now, or of the last one."""
        return self._supervisor

    @supervisor.setter
    def supervisor(self, supervisor: Supervisor | None) -> None:
        self._supervisor = supervisor
        if supervisor is not None:
            supervisor.is_stored = self._is_stored

    @property
    def running(self) -> Supervisor | None:
        """The supervisor of the jail that runs now, if one does."""
        supervisor = self.supervisor
        return supervisor if supervisor is not None and supervisor.death is None else None

    # -- one after the other --

    def exchange(self, supervisor: Supervisor | None) -> Supervisor | None:
        """Returns the former one, whose end is not reported, and sets the next; None for a fresh one."""
        former, self.supervisor = self.supervisor, supervisor
        self._relied.clear()
        return former

    def dismiss(self) -> Supervisor | None:
        """Returns the present one, which its owner gives up; its end is reported to other sessions."""
        former, self.supervisor = self.supervisor, None
        self._relied.pop(OWNER, None)
        return former

    # -- taking over from another process --

    def take_over(self, supervise: Callable[[], Supervisor]) -> Supervisor:
        """Continues with the jail that `supervise` gives."""
        self._relied[OWNER] = None  # before its end can be reported
        self.supervisor = supervisor = supervise()
        if OWNER in self._relied:
            self._relied[OWNER] = supervisor
        return supervisor

    def bereave(self, death: JailExit) -> None:
        """The jail that was left does not exist any more, and no client was informed."""
        self._bereft = death

    def lost(self) -> None:
        """The owner was informed that the jail which was left has ended; it need not be reported again."""
        self._relied.pop(OWNER, None)
        self._bereft = None

    # -- sessions that use it --

    def used(self, seat: AuthorSession, supervisor: Supervisor) -> None:
        """The end of this jail will be reported to the session."""
        self._relied[seat] = supervisor

    def vacate(self, seat: AuthorSession) -> Supervisor | None:
        """The session's client has gone. Returns the jail that the session has used."""
        return self._relied.pop(seat, None)

    def unheard(self, seat: AuthorSession) -> JailExit | None:
        """How the jail that the session has used ended, if it did: reported once."""
        if seat is OWNER and self._bereft is not None:
            death, self._bereft = self._bereft, None
            return death
        supervisor = self._relied.get(seat)
        if supervisor is None or (supervisor is self.supervisor and supervisor.death is None):
            return None
        self.heard(seat, supervisor)
        return supervisor.death or RESET

    def heard(self, seat: AuthorSession, supervisor: Supervisor) -> None:
        """The session's client was informed that this jail ended; it need not be reported again."""
        if self._relied.get(seat) is supervisor:
            del self._relied[seat]
        if seat is OWNER:
            supervisor.mourned()


class InjectionDelivery:
    """Of one runtime. hosts: carries out the host calls of its jails. notes: the record of these calls."""

    def __init__(
        self, policy: SandboxPolicy, hosts: HostHandler, notes: HostCallNotes, legacy: HandoverLog
    ) -> None:
        self._limit = 2 * policy.memory_bytes
        self._hosts = hosts
        self._notes = notes
        self._legacy = legacy

    def deliver(self, supervisor: Supervisor, injection: Injection) -> None:
        """Waits until the jail has the injection. Raises an error with the reason if it cannot have it."""
        delivery = WaitingListener()
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
        """The request that makes the injection; to be submitted."""
        descriptors: list[int] = []
        self._notes.offered(injection.hosts)
        owned: list[Callable[[], None]] = []
        message = injection.request(replace=replace, descriptors=descriptors, owned=owned)
        if (
            injection.hosts
        ):  # each time: a process restored from an earlier state lacks what another process got
            theirs = self._far_end(supervisor)
            descriptors.append(theirs.fileno())
            owned.append(theirs.close)
        return JailRequest(
            RequestKind.INJECT,
            message,
            listener,
            descriptors,
            owned,
            key=key,
            injection=injection.number,
            seat=injection.seat,
        )

    def _far_end(self, supervisor: Supervisor) -> socket.socket:
        """The jail's end of its channel, to be closed after the request."""
        found = supervisor.hosts.far_end()
        if found is not None:
            return found
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = self._legacy.host_channel(ours, theirs)
        line = HostCallChannel(
            ours, self._hosts, self._limit, supervisor.new_assembly(), log, witness=self._notes
        )
        supervisor.hosts.open(line, theirs)
        return theirs.dup()


def _used(policy: SandboxPolicy) -> EnvironmentUsed:
    """What a record says of the packages of jails with this policy, whose environment is a digest."""
    digest = str(policy.environment or "")
    built = EnvironmentStore().get(digest) if digest else None
    if built is None:
        return EnvironmentUsed(digest=digest)
    lock = hashlib.sha256(built.lock.encode()).hexdigest() if built.lock else ""
    return EnvironmentUsed(digest=digest, python=built.python, packages=built.packages, lock=lock)


_CLOSED: Final = JailExit(reason="closed")

StartJail = Callable[[SandboxPolicy, EgressLedger | None, float | None], Supervisor]
"""Starts a jail of a policy, with its runtime's network ledger and the time of its end, monotonic."""


class FreshJails:
    """Of one runtime. Callers have its turn."""

    def __init__(
        self,
        policy: SandboxPolicy,
        ledger: EgressLedger | None,
        start: StartJail,
        noted: InjectionLog,
        deliveries: InjectionDelivery,
        recorder: StepRecorder,
        legacy: HandoverLog,
    ) -> None:
        self.policy = policy
        self._ledger = ledger
        self._start = start
        self._noted = noted
        self._deliveries = deliveries
        self._recorder = recorder
        self._legacy = legacy
        self._ends_at: float | None = None
        self._lock = threading.Lock()
        self._filling: Supervisor | None = None
        self._closed = False

    def close(self) -> None:
        """From any thread: no jail is filled any more. One that is being filled is ended, since values that are
        unpickled there may take any time.
        """
        with self._lock:
            self._closed, filling = True, self._filling
        if filling is not None:
            filling.end(_CLOSED)

    def end_at(self, ends_at: float | None) -> None:
        """Sets when the runtime's time is over, monotonic, if another process has started its first jail."""
        self._ends_at = ends_at

    def pin(self) -> SandboxPolicy:
        """Fixes the environment for all later jails, whatever its name comes to mean. Returns the policy with its
        digest. Blocks while the environment is built.
        """
        self.policy = pinned(self.policy)
        return self.policy

    def make(self, refill: StateSource, steps: int) -> Supervisor:
        """A jail with the injected values, and the state of `refill`. steps: how many have had a number. Blocks.

        Raises RuntimeExpiredError when the runtime's time is over, or the error for which no jail can be started or
        filled.
        """
        try:
            return self._made(refill, steps)
        except FreshJailNeededError:
            return self._made(refill, steps)

    def _made(self, refill: StateSource, steps: int) -> Supervisor:
        noted = self._noted.all()
        with self._started() as supervisor:
            refill.fill(supervisor, lambda: self._inject(supervisor, noted))
            self._legacy.filled(refill.step, steps)
            supervisor.begins_at(refill.step)
            self._recorder.refilled([each.put_in for each in noted], refill.step, refill.arrival)
        self._noted.sweep()
        return supervisor

    def _inject(self, supervisor: Supervisor, injections: Iterable[Injection]) -> None:
        for injection in injections:
            self._deliveries.deliver(supervisor, injection)

    def make_again(self, steps: int) -> Supervisor:
        """A jail with the values that the history begins with. See `make`; values that are gone are left out."""
        with self._started() as supervisor, ExitStack() as closing:
            for injection in self._noted.first():
                closing.callback(injection.close)
                self._deliveries.deliver(supervisor, injection)
                self._delete_again(supervisor, injection)
            self._legacy.filled(START, steps)
            supervisor.begins_at(START)
            self._recorder.began_again()
        return supervisor

    def _delete_again(self, supervisor: Supervisor, injection: Injection) -> None:
        """Deletes those of its names that a client had deleted before the first step."""
        begun = self._recorder.history.begun
        for name, qualified in zip(injection.names, injection.qualified_names, strict=True):
            if qualified not in begun:
                waiting = WaitingListener()
                supervisor.submit(jail_requests.delete(name, waiting, injection.seat))
                waiting.outcomes.get()  # where the jail has ended, the next request says so

    @contextmanager
    def _started(self) -> Iterator[Supervisor]:
        """A started jail. It is ended if it cannot be filled."""
        began = time.monotonic()
        supervisor = self._start(self.pin(), self._ledger, self._lifetime_left())
        try:
            with self._lock:
                self._filling, closed = supervisor, self._closed
            if closed:
                raise RuntimeClosedError("this runtime was closed while its jail was started; make a new one")
            self._recorder.runs_in(_used(self.policy))
            yield supervisor
            took = time.monotonic() - began
            self._recorder.counts.observe(STARTS, took, "cold" if supervisor.began_cold else "warm")
        except BaseException:
            supervisor.end(_CLOSED)
            raise
        finally:
            with self._lock:
                self._filling = None

    def _lifetime_left(self) -> float | None:
        """When the runtime's time is over, counted from its first start."""
        limit = self.policy.runtime_timeout
        if limit is None:
            return None
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + limit
        if now >= self._ends_at:
            raise RuntimeExpiredError(limit)
        return self._ends_at
