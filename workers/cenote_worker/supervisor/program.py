"""Programs that run beside a jail's worker: their streams, their end, and how they are ended.

Each stream is a pipe of its own between the program and this process, without anything in between: a program whose
reader is slow waits as it would at a terminal, alone. Its attendant's reports are trusted as little as a cell's:
they are bounded, and one that makes no sense ends the program. Programs run on the reactor's thread; those of one
jail are counted, and end with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from cenote_security.errors import JailLostError, UnavailableError, UsageError
from cenote_worker.execution.programs import MAX_REPORT, MAX_SPEC, ProgramEnd, ProgramOrder
from cenote_worker.execution.results import StreamName
from cenote_worker.supervisor.channels.warden import WardenChannel
from cenote_worker.supervisor.jail_count_limit import ensure_room
from cenote_worker.supervisor.reactor import Reactor, Timer

CHUNK: Final = 64 * 1024
"""Bytes of one read from a stream, so that no program makes others wait."""

LAST_BYTES: Final = 2**20
"""Bytes still read of each stream when the program has ended: as much as a pipe can hold. Processes that it has left
running may have the pipe open, and write for ever.
"""

KILL_SECONDS: Final = 2.0
"""Seconds for an attendant to end its program; after that the warden does. It takes milliseconds."""

WORD_SECONDS: Final = 1.0
"""Seconds for the warden to report why an attendant has gone without a report of its own."""


class ProgramListener(Protocol):
    """Observes one program. Called on the reactor's thread: must not block."""

    def started(self, pid: int) -> None:
        """It runs. pid: as the jail sees it."""

    def output(self, stream: StreamName, data: bytes) -> bool:
        """Bytes as they come. False when the listener cannot keep up: reading stops until `Program.resume`."""

    def ended(self, outcome: ProgramEnd | Exception) -> None:
        """The last call. An exception: the program was never started."""


class ProgramHandle(Protocol):
    """Controls a program, from any thread. After the program's end no call has an effect."""

    def write(self, data: bytes, taken: Callable[[Exception | None], None]) -> None:
        """Input. `taken` is called once the program's pipe has all of it, or with the reason why it never will."""

    def close_input(self) -> None:
        """The program reads the end of its input once it has read all that was written."""

    def signal(self, number: int) -> None:
        """Sends a signal to its process group."""

    def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size."""

    def kill(self) -> None:
        """Ends the program, with all that it has started."""

    def resume(self) -> None:
        """The listener can take output again."""


@dataclass(slots=True)
class ProgramEnds:
    """This process's ends of a program. streams: its output; stdin: -1 where it has none, or it was closed."""

    line: socket.socket
    streams: dict[StreamName, int]
    stdin: int
    terminal: bool = False

    def close(self) -> None:
        self.line.close()
        for descriptor in {*self.streams.values(), self.stdin} - {-1}:
            os.close(descriptor)
        self.streams, self.stdin = {}, -1


@dataclass(slots=True)
class _Input:
    data: memoryview
    taken: Callable[[Exception | None], None] = field(repr=False)


class Program:
    """See ProgramHandle. Methods that are not for any thread are for the reactor's."""

    def __init__(
        self,
        ends: ProgramEnds,
        listener: ProgramListener,
        reactor: Reactor,
        *,
        timeout: float | None,
        strike: Callable[[], None],
        forgotten: Callable[[], None],
    ) -> None:
        """strike: has its attendant killed. forgotten: called once, when it has ended."""
        self._ends = ends
        self._listener = listener
        self._reactor = reactor
        self._strike = strike
        self._forgotten = forgotten
        self._input = deque[_Input]()
        self._input_closes = False
        self._writing = False
        self._paused = False
        self._over = False
        self._began = time.monotonic()
        self._reason: str = ""
        self._pid = 0
        self._report: tuple[int | None, int | None] | None = None
        self._left: dict[StreamName, int] = {}
        self._timers: list[Timer] = []
        if timeout is not None:
            self._timers.append(reactor.call_at(self._began + timeout, lambda: self.end("timeout")))
        reactor.call_soon(self._watch)

    # -- from any thread --

    def write(self, data: bytes, taken: Callable[[Exception | None], None]) -> None:
        """See ProgramHandle."""
        self._reactor.call_soon(lambda: self._queue(_Input(memoryview(bytes(data)), taken)))

    def close_input(self) -> None:
        """See ProgramHandle. A terminal has no end of its own: it gets the character that stands for it (^D)."""
        self._reactor.call_soon(self._close_input)

    def signal(self, number: int) -> None:
        """See ProgramHandle."""
        self._reactor.call_soon(lambda: self._signal(number))

    def resize(self, rows: int, columns: int) -> None:
        """See ProgramHandle."""
        self._reactor.call_soon(lambda: self._resize(rows, columns))

    def kill(self) -> None:
        """See ProgramHandle."""
        self._reactor.call_soon(lambda: self.end("kill"))

    def resume(self) -> None:
        """See ProgramHandle."""
        self._reactor.call_soon(self._resume)

    # -- its end --

    def end(self, reason: str) -> None:
        """Ends the program and all that it has started. The first reason counts."""
        if self._over or self._reason or self._report is not None:
            return
        self._reason = reason
        self._paused = False  # a client that does not read must not make a process live on
        if not self._tell({"op": "kill"}):
            self._strike()
        self._call_in(KILL_SECONDS, self._end_harder)

    def _end_harder(self) -> None:
        if self._report is None and not self._over:
            self._strike()
            self._call_in(KILL_SECONDS, lambda: self.gone(""))

    def unattended(self, cause: str) -> None:
        """Its attendant was killed, and the program with it."""
        self._reason = self._reason or cause or "signal 9"
        self._finish()

    def refused(self, error: Exception) -> None:
        """The program was never started."""
        if self._over:
            return
        self._over = True
        self._let_go()
        self._listener.ended(error)

    def gone(self, reason: str) -> None:
        """Its jail has ended, or this process releases the jail."""
        self._reason = self._reason or reason
        self._finish()

    # -- hearing --

    def _watch(self) -> None:
        if self._over:
            return
        self._reactor.watch(self._ends.line.fileno(), self._hear)
        self._read_all()

    def _read_all(self) -> None:
        for stream, descriptor in self._ends.streams.items():
            self._reactor.watch(descriptor, partial(self._read, stream))

    def _hear(self) -> None:
        try:
            data = self._ends.line.recv(MAX_REPORT, socket.MSG_DONTWAIT)
            report = json.loads(data) if data else None
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError):
            report = None
        if not isinstance(report, dict):
            self._unheard()
            return
        match report.get("op"), report.get("pid"), report.get("status"), report.get("signal"):
            case "failed", _, _, _ if not self._pid:
                code = report.get("code")
                self.refused(too_many(code if isinstance(code, int) and 0 < code < 256 else 0))
            case "started", int(pid), _, _ if 0 < pid < 1 << 22:
                self._pid = pid
                self._listener.started(pid)
            case "ended", _, int(status), None if 0 <= status < 256:
                self._ended(status, None)
            case "ended", _, None, int(number) if 0 < number < 65:
                self._ended(None, number)
            case _:
                self.end("protocol")

    def _unheard(self) -> None:
        """The attendant has gone without a report on the program. The warden says why, and ends the program."""
        self._reactor.unwatch(self._ends.line.fileno())
        if self._report is None and not self._over:
            self._strike()
            self._call_in(WORD_SECONDS, lambda: self.unattended(""))

    def _ended(self, status: int | None, number: int | None) -> None:
        if self._report is not None:
            return
        self._report = status, number
        self._left = dict.fromkeys(self._ends.streams, LAST_BYTES)
        self._drain()

    def _drain(self) -> None:
        """Reads what the program has written before it ended. Its end is reported only after that."""
        for stream in tuple(self._ends.streams):
            while stream in self._ends.streams and not self._paused:
                self._read(stream)
        if not self._ends.streams:
            self._finish()

    def _read(self, stream: StreamName) -> None:
        descriptor = self._ends.streams.get(stream, -1)
        if descriptor < 0 or self._paused:
            return
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            data = None
        except OSError:  # no process has the terminal open; a jail has nothing to open it with again
            data = b""
            if self._report is None:  # closing it here would hang up: SIGHUP would end what still runs
                self._reactor.unwatch(descriptor)
                return
        if data is None and self._report is None:
            return
        if data:
            if not self._listener.output(stream, data) and not self._reason:
                self._pause()
            if self._report is None:
                return
            self._left[stream] -= len(data)
            if self._left[stream] > 0:
                return
        self._close(stream)

    def _close(self, stream: StreamName) -> None:
        """A terminal's end is also the end of its input."""
        descriptor = self._ends.streams.pop(stream)
        self._reactor.unwatch(descriptor)
        if self._ends.terminal:
            self._close_stdin(UsageError("the process has closed its terminal"))
        os.close(descriptor)

    def _pause(self) -> None:
        self._paused = True
        for descriptor in self._ends.streams.values():
            self._reactor.unwatch(descriptor)

    def _resume(self) -> None:
        if self._over or not self._paused:
            return
        self._paused = False
        if self._report is None:
            self._read_all()
        else:
            self._drain()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        status, number = self._report or (None, None)
        killed_by = self._reason or (f"signal {number}" if number else "")
        duration = time.monotonic() - self._began
        code = status if not self._reason else None
        if not killed_by and code is None:
            killed_by = "jail"
        self._let_go()
        self._listener.ended(ProgramEnd(exit_code=code, killed_by=killed_by, duration=duration))

    def _let_go(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._close_stdin(UsageError("the process has ended"))
        for descriptor in (self._ends.line.fileno(), *self._ends.streams.values()):
            self._reactor.unwatch(descriptor)
        self._ends.close()
        self._forgotten()

    # -- telling --

    def _queue(self, piece: _Input) -> None:
        if self._ends.stdin < 0 or self._input_closes:
            piece.taken(UsageError("the input of this process is closed; nothing more can be written to it"))
            return
        self._input.append(piece)
        if not self._writing:
            self._write()

    def _write(self) -> None:
        """Writes as much as the pipe takes; the rest when there is room again."""
        while self._input:
            piece = self._input[0]
            try:
                written = os.write(self._ends.stdin, piece.data)
            except BlockingIOError:
                self._await_room()
                return
            except OSError:
                self._close_stdin(UsageError("the process reads no input any more"))
                return
            piece.data = piece.data[written:]
            if not piece.data:
                self._input.popleft()
                piece.taken(None)
        self._rest_from_writing()
        if self._input_closes:
            self._close_stdin(None)

    def _await_room(self) -> None:
        if not self._writing:
            self._writing = True
            self._reactor.watch_room(self._ends.stdin, self._write)

    def _rest_from_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._reactor.unwatch(self._ends.stdin)

    def _signal(self, number: int) -> None:
        self._tell({"op": "signal", "number": int(number)})

    def _close_input(self) -> None:
        if self._ends.stdin < 0 or self._input_closes:
            return
        if self._ends.terminal:
            self._queue(_Input(memoryview(b"\x04"), lambda _error: None))
            return
        self._input_closes = True
        if not self._writing:
            self._write()

    def _close_stdin(self, error: Exception | None) -> None:
        if self._ends.stdin < 0:
            return
        self._rest_from_writing()
        os.close(self._ends.stdin)
        self._ends.stdin = -1
        waiting, self._input = self._input, deque()
        for piece in waiting:
            piece.taken(error)

    def _resize(self, rows: int, columns: int) -> None:
        if not self._over and self._ends.terminal and "stdout" in self._ends.streams:
            with suppress(OSError):
                set_size(self._ends.streams["stdout"], rows, columns)

    def _tell(self, command: dict[str, object]) -> bool:
        if self._over:
            return False
        try:
            self._ends.line.send(json.dumps(command).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:  # it does not read: the warden ends it if need be
            return False
        return True

    def _call_in(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._reactor.call_at(time.monotonic() + seconds, callback))


def set_size(terminal: int, rows: int, columns: int) -> None:
    """Sets the size of a terminal, in characters. Raises OSError."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def too_many(code: int) -> UnavailableError:
    """The error for an errno that the warden reported."""
    return UnavailableError(
        f"the runtime cannot begin another process ({os.strerror(code)}): it runs as many as its policy or the "
        "machine allows; wait for one to end, or give it more with SandboxPolicy(processes=...)"
    )


_PER_PROGRAM = 8
"""Descriptors per program, including those in transit."""


class JailPrograms:
    """Of one jail. `begin` is called from any thread; all else on the reactor's or under the supervisor's lock."""

    def __init__(
        self, reactor: Reactor, lock: threading.RLock, control: WardenChannel, isolation: str
    ) -> None:
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
        """Raises UnavailableError, JailLostError, UsageError. The listener learns whether it could be started."""
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
        """See WardenObserver."""
        if (program := self._running.get(number)) is not None:
            program.refused(too_many(code))

    def unattended(self, number: int, cause: str) -> None:
        """See WardenObserver."""
        if (program := self._running.get(number)) is not None:
            program.unattended(cause if cause in ("rollback", "worker") else "")

    def relieve(self) -> bool:
        """Ends all programs, because memory is short. False if there are none that this was not tried on."""
        going = self._running.keys() - self._relieved
        self._relieved |= going
        for number in going:
            self._reactor.call_soon(partial(self._running[number].end, "memory"))
        return bool(going)

    def close(self, reason: str) -> None:
        """The jail has ended, or is left to another process: then the attendants end the programs. On any thread."""
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
    """This process's ends of a program, and the descriptors that go into the jail, in an attendant's order."""
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
