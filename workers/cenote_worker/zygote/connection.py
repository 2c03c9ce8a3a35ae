"""One zygote process and the socket to it, shared by the threads of one client process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cenote_security.errors import IsolationUnavailableError, JailStartError, UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.walls.fresh_python_unsafe import FreshPython
from cenote_security.walls.interpreter import Interpreter
from cenote_security.walls.level import LevelName
from cenote_worker.patient_wait import PatientWait
from cenote_worker.zygote.birth import START_SECONDS
from cenote_worker.zygote.descriptors import JailDescriptors
from cenote_worker.zygote.spec import MAX_MESSAGE, JailRequest, ZygoteSpec

READY_SECONDS: Final = 120.0
"""A zygote that has not imported its preload by then is given up: a cold disk takes seconds, not minutes."""

_ZYGOTE: Final = "cenote_worker.zygote.main"

_STARTS_AT_ONCE: Final = 32
"""More would only queue; each holds four descriptors in flight, and the kernel limits those per user."""

_ON_THE_WAY_SECONDS: Final = 2.0
"""Whoever starts a jail says itself that it is not ready in time: this much later, that was lost."""

_END_SECONDS: Final = 2.0

_CLEAN_SECONDS: Final = 20.0
"""For a zygote to end its jails and remove their folders, which are left if it is killed over it. It takes a moment
where the machine has time for that. One that still loads modules has none, and does not hear."""


@dataclass(frozen=True, kw_only=True)
class ZygoteFacts:
    """What a zygote said when it was ready. missing: preload modules that are not installed.

    base_memory: bytes that a jail begins with, shared until it writes to them; a policy's memory comes on top.
    own_tasks, tasks_each: see Level.
    """

    isolation: LevelName
    base_memory: int
    own_tasks: int
    tasks_each: int
    preloaded: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StartedJail:
    """A jail that is ready. pidfd: of its warden, owned by the caller; readable when the jail has ended.

    egress: a TCP socket, likewise owned, on which the connections of a jail that has a network arrive.
    """

    number: int
    pidfd: int
    isolation: LevelName
    egress: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Reply:
    message: dict[str, Any]
    handles: Sequence[int]


class Connection:
    """Starts a zygote at once and waits for it only when something is asked of it.

    Replies come in any order. Whichever thread waits first reads for all: no thread of its own, nothing to stop.
    """

    def __init__(self, interpreter: Interpreter, spec: ZygoteSpec) -> None:
        """Closes nothing of the spec's: the zygote has copies."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            end = theirs.fileno()
            passed = (end,) if spec.held < 0 else (end, spec.held)
            self._process = FreshPython(interpreter, _ZYGOTE, "run", str(end), descriptors=passed)
        self._lingers = spec.lingers
        self._poll = select.poll()  # unlike select, good for any number of descriptors
        self._poll.register(self._socket, select.POLLIN)
        self._news = threading.Condition()
        self._replies: dict[int | None, _Reply] = {}
        self._given_up: set[int] = set()
        self._reading = False
        self._ended: UnavailableError | None = None
        self._facts: ZygoteFacts | None = None
        self._slots = threading.BoundedSemaphore(_STARTS_AT_ONCE)
        self._send(spec.to_json().encode(), ())

    @property
    def ended(self) -> bool:
        """True when no further jail can come from this zygote."""
        return self._ended is not None or self._process.status is not None

    @property
    def is_ready(self) -> bool:
        """Whether it is known to have loaded its modules; nothing is waited for."""
        return self._facts is not None

    def facts(self) -> ZygoteFacts:
        """Wait until the zygote is ready. Raises what kept it from getting there."""
        if self._facts is None:
            message = self._wait_for(None, READY_SECONDS, keep=True).message
            if message["op"] != "ready":
                raise _broken(message)
            preloaded, missing = tuple(message["preloaded"]), tuple(message["missing"])
            self._facts = ZygoteFacts(
                isolation=message["isolation"],
                base_memory=message["base_memory"],
                own_tasks=message["own_tasks"],
                tasks_each=message["tasks_each"],
                preloaded=preloaded,
                missing=missing,
            )
        return self._facts

    def start(
        self, policy: SandboxPolicy, descriptors: JailDescriptors, number: int, trusted: str = ""
    ) -> StartedJail:
        """Start one jail. trusted: PEM of whom its programs trust, in place of whom they would.

        Raises JailStartError, or UnavailableError when the zygote died.
        """
        self.facts()
        request = JailRequest.of(policy, number, len(descriptors.groups), bool(trusted)).to_json().encode()
        with self._slots, _environment_file(policy.env, trusted) as environment:
            self._send(request, replace(descriptors, environment=environment).in_order())
            try:
                reply = self._wait_for(number, START_SECONDS + _ON_THE_WAY_SECONDS)
            except BaseException:
                self._given_up.add(number)  # its answer may still come, with a descriptor
                raise
        return _started(number, reply, egress=policy.network != "none")

    def close(self) -> None:
        """End the zygote and all its jails, and collect its process. Whoever waits for a start gets an error."""
        with self._news:
            self._ended = self._ended or UnavailableError("the zygote was closed")
            with contextlib.suppress(OSError):
                # Not only close: a fork of this process may hold a copy of the descriptor.
                self._socket.shutdown(socket.SHUT_RDWR)
            # A thread that polls must leave first: the number of a closed descriptor soon means another file.
            self._news.wait_for(lambda: not self._reading)
            self._news.notify_all()
        if self._lingers:
            self._process.disown()
        elif self._end(_END_SECONDS if self._facts is None else _CLEAN_SECONDS) is None:
            self._process.kill()
        self._socket.close()

    def abandon(self) -> None:
        """Let go of a zygote that belongs to the process this one was forked from."""
        self._socket.close()
        self._process.disown()

    # -- the socket ---------------------------------------------------------------------------------------

    def _send(self, message: bytes, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._socket, [message], descriptors)
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                raise UnavailableError(
                    "processes of this user have too many descriptors under way, as a jail may arrange for where it "
                    "is not root who starts it; close the runtimes that may, or try again"
                ) from error
            raise self._ended or self._dead() from error

    def _wait_for(self, key: int | None, seconds: float, *, keep: bool = False) -> _Reply:
        wait = PatientWait(seconds)
        while True:
            with self._news:
                if key in self._replies:
                    return self._replies[key] if keep else self._replies.pop(key)
                if self._ended is not None:
                    raise self._ended
                piece = wait.piece()
                if not piece:
                    raise UnavailableError(
                        f"the zygote did not answer within {seconds:g} s; the machine may be overloaded"
                    )
                if self._reading:
                    self._news.wait(piece)
                    continue
                self._reading = True
            self._read_one(piece)

    def _read_one(self, seconds: float) -> None:
        """Read one reply, for whoever waits for it, and wake all."""
        reply: _Reply | None = None
        dead = False
        try:
            if self._poll.poll(seconds * 1000):
                reply = self._receive()
                dead = reply is None
        except OSError:
            dead = True
        finally:
            with self._news:
                self._reading = False
                if reply is not None:
                    self._file(reply)
                if dead:
                    self._ended = self._ended or self._dead()
                self._news.notify_all()

    def _file(self, reply: _Reply) -> None:
        number = reply.message.get("id")
        if number not in self._given_up:
            self._replies[number] = reply
        else:
            _close(reply.handles)

    def _receive(self) -> _Reply | None:
        packet, handles, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, 2)
        if not packet:
            return None
        for handle in handles:
            os.set_inheritable(handle, False)
        return _Reply(message=json.loads(packet), handles=handles)

    def _end(self, seconds: float) -> int | None:
        """The status of the process, None when it does not end."""
        wait = PatientWait(seconds)
        while (piece := wait.piece()) and self._process.wait(piece) is None:
            pass
        return self._process.status

    def _dead(self) -> UnavailableError:
        status = self._end(_END_SECONDS)
        return UnavailableError(
            f"the zygote process ended (status {status}) before it answered; the next start makes a new one"
        )


@contextlib.contextmanager
def _environment_file(variables: Mapping[str, str], trusted: str) -> Iterator[int | None]:
    if not variables and not trusted:
        yield None
        return
    with open(os.memfd_create("cenote-environment"), "wb") as file:
        file.write(json.dumps({"variables": dict(variables), "trusted": trusted}).encode())
        file.flush()
        yield file.fileno()


def _started(number: int, reply: _Reply, *, egress: bool) -> StartedJail:
    """egress: whether the jail has one. Raises JailStartError, UnavailableError."""
    message = reply.message
    if message["op"] != "started":
        raise JailStartError(message["step"], message["code"], message["detail"])
    if len(reply.handles) != 1 + egress:  # the kernel drops what a full table cannot take
        _close(reply.handles)
        raise UnavailableError(
            "this process has too many files open to take over a jail; close runtimes, or raise `ulimit -n`"
        )
    pidfd, *way_out = reply.handles
    way = way_out[0] if egress else None
    return StartedJail(number=number, pidfd=pidfd, isolation=message["isolation"], egress=way)


def _close(handles: Sequence[int]) -> None:
    for handle in handles:
        os.close(handle)


def _broken(message: dict[str, Any]) -> Exception:
    if message["kind"] == "isolation":
        return IsolationUnavailableError(message["level"], tuple(message["missing"]), message["remedy"])
    if message["kind"] == "preload":
        return UsageError(f"preload failed: {message['detail']}")
    return UnavailableError(f"the zygote could not start: {message['detail']}")
