"""Starts jails: one zygote per process and kind of policy, one reactor per process."""

from __future__ import annotations

import os
import socket
import threading

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
        ours_frames, frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours_control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours_out, out = os.pipe2(os.O_CLOEXEC)
        ours_err, err = os.pipe2(os.O_CLOEXEC)
        try:
            theirs = JailDescriptors(frames=frames.fileno(), control=control.fileno(), stdout=out, stderr=err)
            started = zygote.start_jail(policy, theirs)
        except BaseException:
            ours_frames.close()
            ours_control.close()
            os.close(ours_out)
            os.close(ours_err)
            raise
        finally:
            frames.close()
            control.close()
            os.close(out)
            os.close(err)
        ends = JailEnds(started.pidfd, ours_frames, ours_control, ours_out, ours_err)
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
    return _nursery.start(policy)
