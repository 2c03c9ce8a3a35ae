"""Starts jails: one zygote per process and kind of policy, one reactor per process."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack

from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.supervisor.descriptors import ensure_room
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.supervisor import JailEnds, Supervisor
from cenote_worker.zygote.client import ZygoteClient
from cenote_worker.zygote.descriptors import JailDescriptors


class Nursery:
    """The zygotes and the reactor of this process. A forked child starts with none of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._zygotes: list[ZygoteClient] = []
        self._reactor: Reactor | None = None
        os.register_at_fork(after_in_child=self._forget)

    def start(self, policy: SandboxPolicy) -> Supervisor:
        """A fresh jail with nothing in it.

        Raises IsolationUnavailableError, UnavailableError.
        """
        ensure_room()
        reactor, zygote = self._for(policy)
        with ExitStack() as theirs, ExitStack() as ours:
            frames, control = _socket_pair(ours, theirs), _socket_pair(ours, theirs)
            out, err = _pipe(ours, theirs), _pipe(ours, theirs)
            passed = JailDescriptors(
                frames=frames[1].fileno(), control=control[1].fileno(), stdout=out[1], stderr=err[1]
            )
            started = zygote.start_jail(policy, passed)
            ours.pop_all()
        ends = JailEnds(started.pidfd, frames[0], control[0], out[0], err[0])
        return Supervisor(reactor, ends, policy, started.isolation)

    def _for(self, policy: SandboxPolicy) -> tuple[Reactor, ZygoteClient]:
        with self._lock:
            if self._reactor is None:
                self._reactor = Reactor()
            for zygote in self._zygotes:
                if zygote.fits(policy):
                    return self._reactor, zygote
            self._zygotes.append(ZygoteClient.for_policy(policy))
            return self._reactor, self._zygotes[-1]

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._zygotes = []
        self._reactor = None


_nursery = Nursery()
"""The one state that belongs to the process and to nothing in it: a zygote is shared by all its runtimes."""


def start_jail(policy: SandboxPolicy) -> Supervisor:
    """A fresh jail with nothing in it, supervised. See Nursery.start."""
    try:
        return _nursery.start(policy)
    except OSError as error:
        raise UnavailableError(f"this process cannot have what a jail takes: {error}") from error


def _socket_pair(ours: ExitStack, theirs: ExitStack) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return ours.enter_context(one), theirs.enter_context(other)


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, reader)
    theirs.callback(os.close, writer)
    return reader, writer
