"""Where a cell's output goes, whole lines at a time and in one order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from os import register_at_fork
from os import write as write_descriptor
from typing import Protocol

from cenote_proto.scalars import utf8_text
from cenote_worker.in_jail.pacing import Pacer
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.results import StreamName

__builtins__ = BUILTINS

BUFFERED_CHARS = 8192
"""What is buffered is passed on when it gets this long, finished line or not."""

BURST = 200
"""Lines that a cell prints before they are passed on together, a few milliseconds late."""


class OutputSink(Protocol):
    """What the kernel hands output to. Any thread may call it."""

    def write(self, stream: StreamName, text: str) -> None:
        """Takes text that can be encoded as UTF-8, in the order in which the program wrote it."""

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:
        """Takes one displayed object: text/plain and other text types as str, images as bytes.

        name: not empty for one that takes the place of what the cell has displayed under this name.
        """

    def clear(self) -> None:
        """Drops what the cell has written and displayed so far."""

    def drain(self) -> None:
        """Called at the end of each cell, after its last output."""


class DescriptorSink:
    """Writes to descriptors 1 and 2: what a forked child has, since the sink belongs to its parent."""

    def write(self, stream: StreamName, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[write_descriptor(1 if stream == "stdout" else 2, data) :]

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:  # noqa: ARG002  (no places here)
        text = bundle.get("text/plain")
        if isinstance(text, str):
            self.write("stdout", text + "\n")

    def clear(self) -> None:
        pass

    def drain(self) -> None:
        pass


class Silence:
    """Takes everything, and hands on nothing."""

    def write(self, stream: StreamName, text: str) -> None:
        pass

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:
        pass

    def clear(self) -> None:
        pass

    def drain(self) -> None:
        pass


class OutputBuffer:
    """Both streams of a kernel: collects until a line is complete, keeps the order between the streams.

    A child made by `os.fork` gets a DescriptorSink, so that it never speaks for its parent.
    """

    def __init__(self, sink: OutputSink) -> None:
        self._sink = sink
        self._lock = threading.RLock()
        self._parts: list[tuple[StreamName, str]] = []
        self._size = 0
        self._passing_on = False
        self._clears = False
        self._lines = 0
        self._pacer: Pacer | None = None
        self.complaints = 0
        """Texts that were written to standard error."""
        _guard_forks(self)

    def write(self, stream: StreamName, text: str) -> None:
        with self._lock:
            if self._clears:
                self._drop()
            self.complaints += stream == "stderr"
            self._parts.append(
                (stream, text)
            )  # in one: a destructor that prints may run at any point of this
            self._size += len(text)
            if self._size >= BUFFERED_CHARS:
                self.flush()
            elif text.endswith("\n"):
                self._end_line()

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:
        with self._lock:
            if self._clears:
                self._drop()
            self.flush()
            self._sink.display(bundle, *([name] if name else []))

    def clear(self, *, wait: bool) -> None:
        """Drops what the cell has put out. wait: only when it puts out something else."""
        with self._lock:
            self._clears = True
            if not wait:
                self._drop()

    def flush(self) -> None:
        """Hands everything to the sink.

        A write from inside the sink (a `__del__` that prints, run by the collector) only joins the buffer: the
        sink's own locks need not be reentrant.
        """
        with self._lock:
            if not self._parts or self._passing_on:
                return
            self._passing_on = True
            try:
                parts, self._parts, self._size = self._parts, [], 0
                for stream, run in groupby(parts, key=_stream_of):
                    self._sink.write(stream, utf8_text("".join([text for _, text in run])))
            finally:
                self._passing_on = False

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """What is put out meanwhile goes nowhere."""
        sink, self._sink = self._sink, Silence()
        try:
            yield
        finally:
            self._sink = sink

    def drain(self) -> None:
        """Hands everything over at the end of a cell, and lets the sink come to rest."""
        self.settle()
        self._clears = False
        self._lines = 0
        self._sink.drain()

    def settle(self) -> None:
        """Flushes, and ends the thread that flushes later: a fork should find none."""
        pacer, self._pacer = self._pacer, None
        if pacer is not None:
            pacer.stop()
        self.flush()

    def _end_line(self) -> None:
        if self._pacer is not None:
            self._pacer.nudge()
            return
        self.flush()
        self._lines += 1
        if self._lines % BURST == 0:
            pacer = Pacer(self.flush)
            self._pacer = pacer if pacer.start() else None

    def _drop(self) -> None:
        self._clears = False
        self._parts, self._size = [], 0
        self._sink.clear()

    def become_child(self) -> None:
        """Forgets the parent's sink and lock: another thread may have held it when the process forked."""
        self._lock = threading.RLock()
        self._passing_on = False
        self._pacer = None
        self._sink = DescriptorSink()


def _stream_of(part: tuple[StreamName, str]) -> StreamName:
    return part[0]


def _guard_forks(buffer: OutputBuffer) -> None:
    """A hook cannot be taken back, so it must not keep the buffer alive."""
    reference = weakref.ref(buffer)

    def before() -> None:
        if (living := reference()) is not None:
            living.settle()

    def in_child() -> None:
        if (living := reference()) is not None:
            living.become_child()

    register_at_fork(before=before, after_in_child=in_child)
