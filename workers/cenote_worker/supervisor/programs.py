"""The programs that run beside a jail's worker, for its supervisor: begun, counted, ended with it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack
from functools import partial

from cenote_security.errors import JailLostError, UnavailableError, UsageError
from cenote_worker.programs import MAX_SPEC, ProgramOrder
from cenote_worker.results import StreamName
from cenote_worker.supervisor.control import ControlLine
from cenote_worker.supervisor.descriptors import ensure_room
from cenote_worker.supervisor.program import Program, ProgramEnds, ProgramListener, set_size, too_many
from cenote_worker.supervisor.reactor import Reactor

_PER_PROGRAM = 8
"""Descriptors, those that travel among them."""


class Programs:
    """Of one jail. `begin` is called from any thread; all else on the reactor's or under the supervisor's lock."""

    def __init__(self, reactor: Reactor, lock: threading.RLock, control: ControlLine, isolation: str) -> None:
        self._reactor = reactor
        self._lock = lock
        self._control = control
        self._isolation = isolation
        self._running: dict[int, Program] = {}
        self._relieved = set[int]()
        self._closed: Exception | None = None

    @property
    def running(self) -> bool:
        return bool(self._running)

    def begin(self, order: ProgramOrder, listener: ProgramListener) -> Program:
        """Raises UnavailableError, JailLostError, UsageError; whether it could be begun the listener hears."""
        if order.spec.terminal and self._isolation == "gvisor":
            raise UsageError(
                "gVisor's kernel lets no process control a terminal of this machine; spawn it without one, or "
                'in a runtime of isolation="strict"'
            )
        data = order.spec.to_json()
        if len(data) > MAX_SPEC:
            raise UsageError(
                f"arguments and environment of a process have at most {MAX_SPEC} bytes together; give longer "
                "text as its input or in a file"
            )
        ensure_room(_PER_PROGRAM)
        with ExitStack() as theirs, ExitStack() as ours, self._lock:
            if self._closed is not None:
                raise self._closed
            ends, descriptors = _make(data, theirs, ours, order)
            number = self._control.begin_program(descriptors)
            if number is None:
                raise UnavailableError("the runtime does not hear; it may be about to end, try again")
            program = self._running[number] = Program(
                ends,
                listener,
                self._reactor,
                timeout=order.timeout,
                strike=partial(self._strike, number),
                forgotten=partial(self._forget, number),
            )
            ours.pop_all()
        return program

    def not_begun(self, number: int, code: int) -> None:
        """See Observer."""
        if (program := self._running.get(number)) is not None:
            program.refused(too_many(code))

    def unattended(self, number: int, cause: str) -> None:
        """See Observer."""
        if (program := self._running.get(number)) is not None:
            program.unattended(cause if cause in ("rollback", "worker") else "")

    def relieve(self) -> bool:
        """Memory is short: ends all of them. False where there are none that this was not tried on."""
        going = self._running.keys() - self._relieved
        self._relieved |= going
        for number in going:
            self._reactor.call_soon(partial(self._running[number].end, "memory"))
        return bool(going)

    def close(self, reason: str) -> None:
        """The jail has ended, or is left to another process: then their attendants end them. On any thread."""
        self._closed = self._closed or JailLostError(
            f"the runtime has ended ({reason}); the process was not begun"
        )
        self._reactor.call_soon(self._part)

    def _part(self) -> None:
        for program in tuple(self._running.values()):
            program.gone("jail")

    def _strike(self, number: int) -> None:
        with self._lock:
            if self._closed is None:
                self._control.end_program(number)

    def _forget(self, number: int) -> None:
        with self._lock:
            self._running.pop(number, None)
            self._relieved.discard(number)


def _make(
    data: bytes, theirs: ExitStack, ours: ExitStack, asked: ProgramOrder
) -> tuple[ProgramEnds, list[int]]:
    """What this process holds of a program, and what goes into the jail, in an attendant's order."""
    order = os.memfd_create("cenote-program", os.MFD_CLOEXEC)
    theirs.callback(os.close, order)
    os.pwrite(order, data, 0)
    line, their_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.enter_context(their_line)
    ends = ProgramEnds(line, {}, -1, asked.spec.terminal)
    ours.callback(ends.close)
    if asked.spec.terminal:
        inner = _terminal(ends, asked.rows, asked.columns)
        theirs.callback(os.close, inner)
        streams = [inner] * 3
    else:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, reader)
        ends.stdin = _ours(writer)
        if not asked.has_input:
            os.close(ends.stdin)
            ends.stdin = -1
        streams = [reader, _outlet(ends, "stdout", theirs), _outlet(ends, "stderr", theirs)]
    return ends, [order, their_line.fileno(), *streams]


def _outlet(ends: ProgramEnds, stream: StreamName, theirs: ExitStack) -> int:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, writer)
    ends.streams[stream] = _ours(reader)
    return writer


def _terminal(ends: ProgramEnds, rows: int, columns: int) -> int:
    """The inner end. The outer one is two descriptors: the reactor waits at one to read and at the other to write."""
    outer, inner = os.openpty()
    ends.streams["stdout"] = _ours(outer)
    ends.stdin = os.dup(outer)
    set_size(inner, rows, columns)
    return inner


def _ours(descriptor: int) -> int:
    os.set_blocking(descriptor, False)
    return descriptor
