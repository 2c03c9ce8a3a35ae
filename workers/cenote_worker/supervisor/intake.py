"""What a jail says, read in the order in which it was said: its packets, and what came through its pipes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from cenote_security.errors import ProtocolViolation
from cenote_worker.frames import Packet
from cenote_worker.pieces import Assembly
from cenote_worker.results import StreamName
from cenote_worker.supervisor.chronicle import Chronicle
from cenote_worker.supervisor.edge import JailEvent
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.supervisor.pipes import PipeReader
from cenote_worker.supervisor.reactor import Reactor

PACKETS_PER_TURN: Final = 64
"""A jail that floods its socket gets this many packets read before the others have their turn."""

_MAX_LAST_PACKETS: Final = 10_000
"""More than a socket's buffer holds: all that a dead jail can have left behind."""


class Hearer(Protocol):
    """Hears what is read, under the lock. It may pause or deafen the intake meanwhile."""

    def heard(self, event: JailEvent) -> None:
        """A packet. Raises ProtocolViolation for what may not be said now."""

    def piped(self, stream: StreamName, text: str) -> None:
        """What child processes and C code have written."""

    def violated(self, violation: ProtocolViolation) -> None:
        """The jail has said what it may not say. Nothing more is read in this turn."""

    def hung_up(self) -> None:
        """No packet will ever come: every process of the jail has closed its end, or one has shut it."""


class Intake:
    """Of one jail. Used under the lock and on the reactor's thread.

    On any thread: `deafen`, and `replay` before anything is watched. Without the lock: `close`.
    """

    def __init__(
        self,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        chronicle: Chronicle,
        assembly: Assembly | None,
        parse: Callable[[Packet], JailEvent],
        hearer: Hearer,
    ) -> None:
        """assembly: for a jail that sends its packets in pieces. parse: raises ProtocolViolation."""
        self._reactor = reactor
        self._lock = lock
        self._frames = ends.frames
        self._chronicle = chronicle
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
        """Whoever listens is slow: nothing is read until `resume`, and the jail waits when its buffers are full."""
        self._paused = True
        self._unwatch()

    def resume(self) -> None:
        """Goes on, if it was paused."""
        if self._paused:
            self._paused = False
            self.watch()

    def deafen(self) -> None:
        """No packet is taken any more: what a condemned jail says while it dies must not pass for an answer."""
        self._deaf = True

    def replay(self, packet: Packet) -> None:
        """Hears a packet that was read before."""
        try:
            self._hearer.heard(self._parse(packet))
        except ProtocolViolation as violation:
            self._hearer.violated(violation)

    def empty_pipes(self) -> None:
        """Takes what stands in them: it was written before what was heard last."""
        for pipe in self._pipes:
            pipe.read()

    def last_words(self, *, trusted: bool) -> None:
        """The jail has ended: takes all that it has left. trusted: packets too, even of one that was condemned."""
        self._paused, self._deaf = False, not trusted
        self._read(_MAX_LAST_PACKETS)
        self.empty_pipes()
        self._deaf = True

    def close(self) -> None:
        """Before the jail's ends are closed."""
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
        """Reads a pipe, but only behind every packet that was sent before its bytes were written."""
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
                packet = self._chronicle.receive(self._frames)
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
