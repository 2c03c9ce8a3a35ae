"""A client's view of its zygote: start a jail, get a handle; a zygote that died is replaced on next use.

A `Connection` is one zygote process and the socket to it, shared by the threads of one client process.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import select
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from cenote_security.environment import Environment
from cenote_security.errors import (
    IsolationUnavailableError,
    JailStartError,
    RuntimeClosedError,
    UnavailableError,
    UsageError,
)
from cenote_security.policy import Isolation, Mount, SandboxPolicy
from cenote_security.walls.fresh_python_unsafe import FreshPython
from cenote_security.walls.interpreter import Interpreter, running
from cenote_security.walls.level import LevelName
from cenote_worker.environments.building import interpreter_of
from cenote_worker.environments.store import EnvironmentStore
from cenote_worker.process.patient_wait import PatientWait
from cenote_worker.zygote.descriptors import JailDescriptors
from cenote_worker.zygote.spawn import START_SECONDS
from cenote_worker.zygote.spec import DEFAULT_ENTRY, MAX_MESSAGE, JailStartRequest, ZygoteSpec

READY_SECONDS: Final = 120.0
"""A zygote that has not imported its preload by then is given up: a cold disk takes seconds, not minutes."""

_ZYGOTE: Final = "cenote_worker.zygote.main"

_STARTS_AT_ONCE: Final = 32
"""More would only queue; each holds four descriptors in flight, and the kernel limits those per user."""

_ON_THE_WAY_SECONDS: Final = 2.0
"""Extra time for an answer: the zygote reports itself that a jail is not ready in time."""

_END_SECONDS: Final = 2.0

_CLEAN_SECONDS: Final = 20.0
"""Time for a zygote to end its jails and remove their folders, which are left if it is killed before. It takes a
moment on an idle machine. A zygote that still loads modules does not react."""


@dataclass(frozen=True, kw_only=True)
class ZygoteFacts:
    """What a zygote said when it was ready. image_key: see that module; empty if its jails cannot become images.
    common: a descriptor of the file that its memory is in, owned by the connection; -1 where there is none.

    missing: preload modules that are not installed.

    base_memory: bytes that a jail begins with, shared until it writes to them; a policy's memory comes on top.
    own_tasks, tasks_each: see Level.
    """

    image_key: str
    common: int
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
    """Starts a zygote at once and waits for it only at the first request.

    Replies come in any order. The first thread that waits reads for all: there is no extra thread to stop.
    """

    def __init__(self, interpreter: Interpreter, spec: ZygoteSpec) -> None:
        """Does not close the spec's descriptors: the zygote has copies."""
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
        """Whether this zygote can start no more jails."""
        return self._ended is not None or self._process.status is not None

    @property
    def is_ready(self) -> bool:
        """Whether it is known to have loaded its modules. Does not wait."""
        return self._facts is not None

    def facts(self) -> ZygoteFacts:
        """Waits until the zygote is ready. Raises the error that prevented it."""
        if self._facts is None:
            reply = self._wait_for(None, READY_SECONDS, keep=True)
            message = reply.message
            if message["op"] != "ready":
                raise _broken(message)
            preloaded, missing = tuple(message["preloaded"]), tuple(message["missing"])
            self._facts = ZygoteFacts(
                image_key=message["image_key"],
                # -1, too, where this process had too many files open to be given it.
                common=reply.handles[0] if reply.handles else -1,
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
        """Starts one jail. trusted: PEM of the authorities that its programs trust instead of the default ones.

        Raises JailStartError, or UnavailableError when the zygote died.
        """
        self.facts()
        request = (
            JailStartRequest.of(policy, number, len(descriptors.groups), bool(trusted)).to_json().encode()
        )
        with self._slots, _environment_file(policy.env, trusted) as environment:
            self._send(request, replace(descriptors, environment=environment).in_order())
            try:
                reply = self._wait_for(number, START_SECONDS + _ON_THE_WAY_SECONDS)
            except BaseException:
                self._given_up.add(number)  # its answer may still come, with a descriptor
                raise
        return _started(number, reply, egress=policy.network != "none")

    def close(self) -> None:
        """Ends the zygote and all its jails, and reaps its process. Calls that wait for a start get an error."""
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
        self._close()

    def abandon(self) -> None:
        """Closes the connection to a zygote that belongs to the process from which this one was forked."""
        self._close()
        self._process.disown()

    def _close(self) -> None:
        self._socket.close()
        if (hello := self._replies.pop(None, None)) is not None:
            _close(hello.handles)

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
        """Reads one reply, for any waiting thread, and wakes all."""
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


def _digest(policy: SandboxPolicy) -> str:
    """Digest of the policy's environment, which `pinned` has built; empty for none."""
    assert not isinstance(policy.environment, Environment), "a policy is pinned before a jail is asked for"
    return policy.environment or ""


class ZygoteClient:
    """Starts jails that share an isolation, a preload and mounts. Safe to use from several threads.

    The zygote process is started at once and gets ready in the background. After a fork of the client the child
    gets a zygote of its own on first use.
    folders: host folders that jails see and import from, besides the interpreter's. entry, lingers: see `ZygoteSpec`.
    environment: the digest of a built one, whose packages the jails have instead; then without `folders`.
    """

    def __init__(
        self,
        *,
        isolation: Isolation = "auto",
        preload: Iterable[str] = ("numpy", "pandas"),
        mounts: Iterable[Mount] = (),
        folders: Sequence[str] = (),
        entry: str = DEFAULT_ENTRY,
        lingers: bool = False,
        environment: str = "",
    ) -> None:
        self._isolation: Isolation = isolation
        self._preload = tuple(preload)
        self._mounts = tuple(mounts)
        self._folders = tuple(folders)
        self._entry = entry
        self._lingers = lingers
        self.environment = environment
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self._connection = self._connect()

    @classmethod
    def for_policy(cls, policy: SandboxPolicy, *, lingers: bool = False) -> ZygoteClient:
        """A zygote for jails of this policy."""
        return cls(
            isolation=policy.isolation,
            preload=policy.preload,
            mounts=policy.mounts,
            lingers=lingers,
            environment=_digest(policy),
        )

    def fits(self, policy: SandboxPolicy) -> bool:
        """Whether this zygote can start jails of this policy."""
        wanted = (policy.isolation, tuple(policy.preload), tuple(policy.mounts), _digest(policy))
        return wanted == (self._isolation, self._preload, self._mounts, self.environment)

    @property
    def facts(self) -> ZygoteFacts:
        """Isolation in force and modules loaded. Waits until the zygote is ready; raises what prevents that."""
        return self._current().facts()

    @property
    def is_ready(self) -> bool:
        """Whether it can start a jail at once, as far as is known without waiting."""
        return self._current().is_ready

    @property
    def isolation(self) -> LevelName:
        return self.facts.isolation

    def start_jail(
        self, policy: SandboxPolicy, descriptors: JailDescriptors, trusted: str = ""
    ) -> StartedJail:
        """Starts a jail and waits until its worker is about to run. trusted: see Connection.start.

        Copies of the descriptors are passed on; the caller keeps its own and should close them. The `policy` must
        fit. Raises IsolationUnavailableError, JailStartError, UnavailableError, UsageError.
        """
        if not self.fits(policy):
            raise UsageError(
                "isolation, preload, mounts and environment of this policy are not those of this zygote"
            )
        return self._current().start(policy, descriptors, next(self._numbers), trusted)

    def close(self) -> None:
        """Ends the zygote and every jail that it started; a zygote that lingers runs on until its jails end."""
        with self._lock:
            if not self._closed and self._owner == os.getpid():
                self._connection.close()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _current(self) -> Connection:
        with self._lock:
            if self._closed:
                raise RuntimeClosedError("this zygote was closed")
            if self._owner != os.getpid():
                self._connection.abandon()
                self._owner, self._connection = os.getpid(), self._connect()
            elif self._connection.ended:
                self._connection.close()
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        if not self.environment:
            return self._connection_to(running(self._folders), self._preload)
        kept = EnvironmentStore()
        built = kept.find(self.environment)
        with kept.held(built.digest) as held:
            preload = tuple(dict.fromkeys((*self._preload, *built.preload)))
            return self._connection_to(interpreter_of(built, kept), preload, held)

    def _connection_to(
        self, interpreter: Interpreter, preload: tuple[str, ...], held: int = -1
    ) -> Connection:
        spec = ZygoteSpec(
            isolation=self._isolation,
            preload=preload,
            mounts=self._mounts,
            search=interpreter.search,
            visible=interpreter.visible,
            entry=self._entry,
            client=os.getpid(),
            lingers=self._lingers,
            prefix=interpreter.prefix,
            held=held,
        )
        return Connection(interpreter, spec)
