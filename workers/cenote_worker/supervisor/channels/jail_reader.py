"""Reads what a jail sends, in the order in which it was sent: its packets, its pipes and its host calls.

The pipes carry what child processes and C code write to descriptors 1 and 2. The channel for host calls comes with
the first host function; most jails have none.
"""

from __future__ import annotations

import codecs
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from cenote_security.errors import ProtocolViolation
from cenote_worker.execution.results import StreamName
from cenote_worker.supervisor.channels.host_calls import HostCallChannel
from cenote_worker.supervisor.frame_parser import JailEvent
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.journal_port import JournalPort
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.transport.packets import Packet, PacketAssembly

PIPE_BYTES_PER_TURN = 256 * 1024
"""Bytes read before other jails have their turn."""


class PipeReader:
    """Non-blocking reads, decoded as UTF-8; anything else becomes replacement characters."""

    def __init__(self, descriptor: int, deliver: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.open = True
        self._deliver = deliver
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> None:
        """Delivers what is there. `open` turns false at the end."""
        taken = 0
        while self.open and taken < PIPE_BYTES_PER_TURN:
            try:
                data = os.read(self.descriptor, 64 * 1024)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.open = bool(data)
            taken += len(data)
            text = self._decoder.decode(data, final=not data)
            if text:
                self._deliver(text)


PACKETS_PER_TURN: Final = 64
"""A jail that floods its socket gets this many packets read before the others have their turn."""

_MAX_LAST_PACKETS: Final = 10_000
"""More than a socket's buffer holds: all that a dead jail can have left behind."""


class JailReaderOwner(Protocol):
    """Gets what is read, under the lock. It may pause or deafen the reader meanwhile."""

    def heard(self, event: JailEvent) -> None:
        """A packet. Raises ProtocolViolation for one that may not be sent now."""

    def piped(self, stream: StreamName, text: str) -> None:
        """Output that child processes and C code have written."""

    def violated(self, violation: ProtocolViolation) -> None:
        """The jail has sent what it may not send. Nothing more is read in this turn."""

    def hung_up(self) -> None:
        """No packet will ever come: every process of the jail has closed its end, or one has shut it."""


class JailReader:
    """The reader of one jail. Used under the lock and on the reactor's thread.

    On any thread: `deafen`, and `replay` before anything is watched. Without the lock: `close`.
    """

    def __init__(
        self,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        journal: JournalPort,
        assembly: PacketAssembly | None,
        parse: Callable[[Packet], JailEvent],
        hearer: JailReaderOwner,
    ) -> None:
        """assembly: for a jail that sends its packets in pieces. parse: raises ProtocolViolation."""
        self._reactor = reactor
        self._lock = lock
        self._frames = ends.frames
        self._journal = journal
        self._assembly = assembly
        self._parse = parse
        self._hearer = hearer
        self._pipes = (
            PipeReader(ends.stdout, partial(hearer.piped, "stdout")),
            PipeReader(ends.stderr, partial(hearer.piped, "stderr")),
        )
        self._paused = False
        self._deaf = False
        self._frames.setblocking(False)

    def watch(self) -> None:
        """Reads whenever there is something."""
        self._reactor.watch(self._frames.fileno(), self._on_frames)
        for pipe in self._pipes:
            if pipe.open:
                self._reactor.watch(pipe.descriptor, partial(self._on_pipe, pipe))

    def pause(self) -> None:
        """The listener is slow: nothing is read until `resume`, and the jail waits when its buffers are full."""
        self._paused = True
        self._unwatch()

    def resume(self) -> None:
        """Goes on, if it was paused."""
        if self._paused:
            self._paused = False
            self.watch()

    def deafen(self) -> None:
        """Takes no packet any more: what a condemned jail sends while it dies must not count as an answer."""
        self._deaf = True

    def replay(self, packet: Packet) -> None:
        """Handles a packet that was read before."""
        try:
            self._hearer.heard(self._parse(packet))
        except ProtocolViolation as violation:
            self._hearer.violated(violation)

    def empty_pipes(self) -> None:
        """Reads the pipes until they are empty: their bytes were written before the last packet was sent."""
        for pipe in self._pipes:
            pipe.read()

    def last_words(self, *, trusted: bool) -> None:
        """The jail has ended: takes all that it has left. trusted: packets too, even of one that was condemned."""
        self._paused, self._deaf = False, not trusted
        self._read(_MAX_LAST_PACKETS)
        self.empty_pipes()
        self._deaf = True

    def close(self) -> None:
        """Call this before the jail's ends are closed."""
        self._paused, self._deaf = False, True
        self._unwatch()
        if self._assembly is not None:
            self._assembly.close()

    def _unwatch(self) -> None:
        for descriptor in (self._frames.fileno(), *(pipe.descriptor for pipe in self._pipes)):
            self._reactor.unwatch(descriptor)

    def _on_frames(self) -> None:
        with self._lock:
            self._read(PACKETS_PER_TURN)

    def _on_pipe(self, pipe: PipeReader) -> None:
        """Reads a pipe, but only after every packet that was sent before its bytes were written."""
        with self._lock:
            if not self._read(PACKETS_PER_TURN):
                return
            pipe.read()
            if not pipe.open:
                self._reactor.unwatch(pipe.descriptor)

    def _read(self, most: int) -> bool:
        """Reads up to `most` packets. True when the socket is known to be empty."""
        for _ in range(most):
            if self._paused or self._deaf:
                return False
            try:
                packet = self._journal.receive(self._frames)
                if packet is None:
                    return self._at_end()
                whole = packet if self._assembly is None else self._assembly.take(packet)
                if whole is not None:
                    self._hearer.heard(self._parse(whole))
            except BlockingIOError:
                return True
            except ProtocolViolation as violation:
                self._hearer.violated(violation)
                return False
            except OSError:
                return self._at_end()
        return False

    def _at_end(self) -> bool:
        self._reactor.unwatch(self._frames.fileno())
        self._hearer.hung_up()
        return True


class HostCallReader:
    """The reader of one jail's host calls."""

    def __init__(
        self, reactor: Reactor, lock: threading.RLock, violated: Callable[[ProtocolViolation], None]
    ) -> None:
        """violated: called when the jail has sent what it may not send on its host channel."""
        self._reactor = reactor
        self._lock = lock
        self._violated = violated
        self._line: HostCallChannel | None = None
        self._far_end: socket.socket | None = None
        """The jail's end, for each of its processes that does not have it: one restored from an earlier state."""
        self._deaf = False

    @property
    def has_line(self) -> bool:
        return self._line is not None

    def far_end(self) -> socket.socket | None:
        """A duplicate of the jail's end of the channel, which the caller closes; None where there is no channel."""
        with self._lock:
            return None if self._far_end is None else self._far_end.dup()

    def open(self, line: HostCallChannel, far_end: socket.socket) -> None:
        """Host calls of the jail arrive on `line` from now on, and it ends with the jail."""
        with self._lock:
            self._line, self._far_end = line, far_end
        self._reactor.call_soon(lambda: self._reactor.watch(line.descriptor, self._on_line))

    def deafen(self) -> None:
        """Nothing is read any more: that is for a successor. Call this, and `abandon`, under the lock."""
        self._deaf = True

    def abandon(self) -> None:
        """The process that made the pending calls is gone, and nothing waits for their answers."""
        if self._line is not None:
            self._line.abandon()

    def close(self) -> None:
        """On the reactor's thread."""
        if self._line is not None:
            self._reactor.unwatch(self._line.descriptor)
            self._line.close()
        with self._lock:
            far_end, self._far_end = self._far_end, None
        if far_end is not None:
            far_end.close()

    def _on_line(self) -> None:
        with self._lock:
            if self._line is None or self._deaf:
                return
            try:
                going_on = self._line.read(PACKETS_PER_TURN)
            except ProtocolViolation as violation:
                going_on = False
                self._violated(violation)
            if not going_on:
                self._reactor.unwatch(self._line.descriptor)
