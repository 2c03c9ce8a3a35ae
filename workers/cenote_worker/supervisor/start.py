"""Starts jails: one zygote per process and kind of policy, one reactor per process."""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from cenote_security.auth.certificates import Certificate
from cenote_security.errors import IsolationUnavailableError, UnavailableError, UsageError
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import shown_size
from cenote_worker.egress.addresses import PublicReach, Reach
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.egress.proxy import EgressService
from cenote_worker.egress.tls_termination import make_authority_of_proxy, trusted_by_jail
from cenote_worker.environments.building import pinned
from cenote_worker.supervisor.account.accounting import Accounting, open_disk
from cenote_worker.supervisor.jail_count_limit import JailCountLimit, ensure_room
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.journal_port import NO_JOURNAL, JournalPort, SupervisorState
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.zygote.client import ZygoteClient
from cenote_worker.zygote.descriptors import JailDescriptors

_CONTAINER_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The memory limit of the container that this process is in, in the two versions of control groups."""


class JailStarter:
    """The zygotes and the reactor of this process. A forked child starts with none of them."""

    def __init__(self, reach: Callable[[], Reach] = PublicReach, *, lingers: bool = False) -> None:
        """reach: how the proxy of a jail resolves names. lingers: see ZygoteSpec."""
        self._lingers = lingers
        self._reach = reach
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._zygotes: list[ZygoteClient] = []
        self._reactor: Reactor | None = None
        self._egress: EgressService | None = None
        self._accounting: Accounting | None = None
        self._ceiling: JailCountLimit | None = None
        self._authority: Certificate | None = None
        os.register_at_fork(after_in_child=self._forget)

    def start(
        self, policy: SandboxPolicy, ledger: EgressLedger | None = None, ends_at: float | None = None
    ) -> Supervisor:
        """A new empty jail, to be ended at `ends_at` on the monotonic clock.

        ledger: of its runtime, when the policy has a network. Raises IsolationUnavailableError, UnavailableError.
        """
        ceiling = self._own_ceiling()
        with ExitStack() as started:
            ceiling.take()
            started.callback(ceiling.give)
            ends = self.start_ends(policy)
            started.callback(ends.close)
            supervisor = self._supervise(ends, policy, ledger, ends_at, ceiling.give)
            started.pop_all()
        return supervisor

    def start_ends(self, policy: SandboxPolicy) -> JailEnds:
        """A new empty jail, for any process to supervise. It ends with this process's zygote.

        Raises IsolationUnavailableError, UnavailableError.
        """
        ensure_room(2 * policy.network.connections if isinstance(policy.network, Allow) else 0)
        _, accounting, zygote = self._for(policy)
        authority = None
        if isinstance(policy.network, Allow):
            _check_network(zygote)
            authority = self._own_authority() if policy.network.credentials else None
        cold = not zygote.is_ready
        facts = zygote.facts
        base = facts.base_memory
        with ExitStack() as theirs, ExitStack() as ours:
            group = accounting.group_for(policy, facts, theirs)
            if group is not None:
                ours.callback(group.remove)
                ours.callback(group.close)
            frames, control = _socket_pair(ours, theirs), _socket_pair(ours, theirs)
            out, err = _pipe(ours, theirs), _pipe(ours, theirs)
            passed = JailDescriptors(
                frames=frames[1].fileno(),
                control=control[1].fileno(),
                stdout=out[1],
                stderr=err[1],
                groups=group.entrances(theirs) if group is not None else (),
            )
            started = zygote.start_jail(policy, passed, trusted_by_jail(authority) if authority else "")
            ours.pop_all()
        return JailEnds(
            pidfd=started.pidfd,
            frames=frames[0],
            control=control[0],
            stdout=out[0],
            stderr=err[0],
            isolation=started.isolation,
            base=base,
            group=group,
            # A group itself counts files in memory.
            disk=open_disk(started.pidfd, started.isolation) if group is None else -1,
            egress=-1 if started.egress is None else started.egress,
            authority=authority,
            cold=cold,
            image_key=facts.image_key,
            common=os.dup(facts.common) if facts.image_key and facts.common >= 0 else -1,
        )

    def supervise(
        self,
        ends: JailEnds,
        policy: SandboxPolicy,
        ledger: EgressLedger | None,
        ends_at: float | None,
        journal: JournalPort,
        succession: SupervisorState | None = None,
    ) -> Supervisor:
        """Supervises a jail that any process started before. Its ends are taken over unless this raises.

        The supervisor of a jail removes its control group in the end.
        """
        ensure_room(2 * policy.network.connections if isinstance(policy.network, Allow) else 0)
        ceiling = self._own_ceiling()
        ceiling.take()
        try:
            return self._supervise(ends, policy, ledger, ends_at, ceiling.give, journal, succession)
        except BaseException:
            ceiling.give()
            raise

    def _supervise(
        self,
        ends: JailEnds,
        policy: SandboxPolicy,
        ledger: EgressLedger | None,
        ends_at: float | None,
        buried: Callable[[], None],
        journal: JournalPort = NO_JOURNAL,
        succession: SupervisorState | None = None,
    ) -> Supervisor:
        reactor, accounting = self._own_threads()
        egress = None
        if ends.egress >= 0:
            assert isinstance(policy.network, Allow), "a jail has a way out if its policy has a network"
            listener = socket.socket(fileno=os.dup(ends.egress))
            egress = self._egress_service().open(
                listener, ledger or EgressLedger(policy.network), ends.authority
            )
        account = accounting.account(policy, ends)
        return Supervisor(reactor, ends, policy, account, buried, egress, ends_at, journal, succession)

    def _egress_service(self) -> EgressService:
        with self._lock:
            if self._egress is None:
                self._egress = EgressService(self._reach)
            return self._egress

    def retire(self, environment: str) -> None:
        """Ends the zygotes of an environment, by digest, so that it can be removed. Their jails end with them, unless
        the zygotes linger.
        """
        with self._lock:
            ended = [each for each in self._zygotes if each.environment == environment]
            self._zygotes = [each for each in self._zygotes if each not in ended]
        for zygote in ended:
            zygote.close()

    def sweep(self) -> None:
        """Call this from time to time where other processes supervise the jails: a killed one removes no groups."""
        with self._lock:
            accounting = self._accounting
        if accounting is not None:
            accounting.sweep_groups()

    def close(self) -> None:
        """At the end of the process: jails that still run have their control groups open, so they end first."""
        with self._lock:
            accounting, zygotes = self._accounting, list(self._zygotes)
        if accounting is None or self._pid != os.getpid():
            return
        for zygote in zygotes:
            zygote.close()
        accounting.remove_groups()

    def _own_authority(self) -> Certificate:
        """One for all jails that begin here: a branch has its parent's, which the parent's programs have loaded."""
        with self._lock:
            if self._authority is None:
                self._authority = make_authority_of_proxy()
            return self._authority

    def _own_ceiling(self) -> JailCountLimit:
        with self._lock:
            if self._ceiling is None:
                self._ceiling = JailCountLimit()
            return self._ceiling

    def _for(self, policy: SandboxPolicy) -> tuple[Reactor, Accounting, ZygoteClient]:
        reactor, accounting = self._own_threads()
        with self._lock:
            for zygote in self._zygotes:
                if zygote.fits(policy):
                    return reactor, accounting, zygote
            self._zygotes.append(ZygoteClient.for_policy(policy, lingers=self._lingers))
            return reactor, accounting, self._zygotes[-1]

    def _own_threads(self) -> tuple[Reactor, Accounting]:
        with self._lock:
            if self._reactor is None or self._accounting is None:
                self._reactor = Reactor()
                self._accounting = Accounting(self._reactor)
                atexit.register(self.close)
            return self._reactor, self._accounting

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._zygotes = []
        self._reactor = None
        self._egress = None
        self._accounting = None
        self._ceiling = None
        self._authority = None


@lru_cache(maxsize=1)
def machine_memory() -> int:
    """Bytes of memory that this machine has, or the container that this process is in."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # another version of control groups; or `max`, which is no limit
            found.append(int(Path(path).read_text()))
    return min(found)


def _check_memory(policy: SandboxPolicy) -> None:
    """A limit that cannot be reached is none: the machine would run out of memory first, and other jails with it."""
    if policy.memory_bytes > machine_memory():
        raise UsageError(
            f"a jail of {shown_size(policy.memory_bytes)} was asked for, and this machine has "
            f"{shown_size(machine_memory())} of memory; ask for less, with --memory or SandboxPolicy(memory=...)"
        )


def _check_network(zygote: ZygoteClient) -> None:
    """Only a network namespace restricts a jail to its proxy."""
    if (isolation := zygote.isolation) != "strict":
        raise IsolationUnavailableError(
            "strict",
            (f"network=Allow(...) needs a network namespace, which isolation {isolation!r} has not",),
            'Use network="none", or run `cenote doctor` to see how to enable strict.',
        )


_nursery = JailStarter()
"""The only process-wide state: a zygote is shared by all runtimes of the process."""


def start_jail(
    policy: SandboxPolicy, ledger: EgressLedger | None = None, ends_at: float | None = None
) -> Supervisor:
    """A new empty jail, supervised. Raises UsageError for too much memory; see JailStarter.start."""
    _check_memory(policy)
    policy = pinned(policy)
    with _explained():
        return _nursery.start(policy, ledger, ends_at)


def start_ends(policy: SandboxPolicy, nursery: JailStarter = _nursery) -> JailEnds:
    """A new empty jail, not supervised yet. Raises as `start_jail`; see JailStarter.start_ends."""
    _check_memory(policy)
    policy = pinned(policy)
    with _explained():
        return nursery.start_ends(policy)


def retire_environment(digest: str) -> None:
    """No jail of this process has the environment any more: see JailStarter.retire."""
    _nursery.retire(digest)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"this process cannot have what a jail takes: {error}; close runtimes, or raise its limits (`ulimit -a`)"
        ) from error


def supervise(
    ends: JailEnds,
    policy: SandboxPolicy,
    ledger: EgressLedger | None,
    ends_at: float | None,
    journal: JournalPort,
    succession: SupervisorState | None = None,
) -> Supervisor:
    """Continues with a jail that was started before. See JailStarter.supervise."""
    return _nursery.supervise(ends, policy, ledger, ends_at, journal, succession)


def _socket_pair(ours: ExitStack, theirs: ExitStack) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return ours.enter_context(one), theirs.enter_context(other)


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, reader)
    theirs.callback(os.close, writer)
    return reader, writer
