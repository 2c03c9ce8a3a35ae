"""What a cell writes to its standard streams: whole lines at a time, in one order, decoded.

`CellStream` replaces `sys.stdout` and `sys.stderr`. `OutputBuffer` collects both streams until a line is complete and
keeps their order. If a cell prints many short lines, a `Pacer` sends many of them together.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from os import register_at_fork
from os import write as write_descriptor
from typing import TYPE_CHECKING, Protocol

from cenote_proto.scalars import utf8_text
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.execution.results import StreamName
from cenote_worker.jail.tracking.process_state.event_loop_state import OwnThread
from cenote_worker.process.pristine import BUILTINS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


__builtins__ = BUILTINS

PAUSE = 0.005
"""Seconds that a line waits for others."""

_LOOKS = 550
_QUICK_LOOKS = 50
"""Checks of a thread that has ended but that the kernel still has. Later checks are a millisecond apart: a thousand
times what it takes on an idle machine."""

_Thread, _Event = OwnThread, threading.Event
_sleep, _exists = time.sleep, os.path.exists


def write_whole_lines() -> None:
    """From now on, lines that a cell prints past `CellStream` come among its other ones, not with a later cell's."""
    libc.write_whole_lines()
    if isinstance(sys.__stdout__, io.TextIOWrapper):
        sys.__stdout__.reconfigure(line_buffering=True)


class Pacer:
    """A thread that flushes soon after it was nudged. It lives for one cell that prints a lot.

    Each line that is sent wakes the supervisor; a cell that prints a hundred thousand lines would spend seconds on
    that alone. A thread is used instead of reading the clock in `write`: the last line before a long silence must be
    sent too.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._nudged, self._stopped = _Event(), _Event()
        self._thread = _Thread(target=self._work, name="output", daemon=True)

    def start(self) -> bool:
        """False when no thread can be started: the jail's limit is reached."""
        try:
            self._thread.start()
        except RuntimeError:
            return False
        return True

    def nudge(self) -> None:
        if not self._nudged.is_set():
            self._nudged.set()

    def stop(self) -> None:
        """Ends the thread. The caller flushes the rest."""
        self._stopped.set()
        self._nudged.set()
        self._thread.join(1)
        _await_end(self._thread.native_id)

    def _work(self) -> None:
        while True:
            self._nudged.wait()
            if self._stopped.wait(PAUSE):
                return
            self._nudged.clear()
            if self._stopped.is_set():  # since the last look: its nudge may be the one that was just cleared
                return
            try:
                self._flush()
            except Exception:  # the sink is gone; the cell's own writes will report that
                return


def _await_end(thread: int | None) -> None:
    """Before Python 3.13 the kernel has a joined thread for a moment longer, and a fork then warns of it."""
    for look in range(_LOOKS):
        if not _exists(f"/proc/self/task/{thread}"):
            return
        _sleep(0 if look < _QUICK_LOOKS else 0.001)


BUFFERED_CHARS = 8192
"""Buffered text is sent when it gets this long, whether or not the line is complete."""

BURST = 200
"""Lines that a cell prints before they are sent in batches, a few milliseconds late."""


class OutputSink(Protocol):
    """The destination of the kernel's output. Any thread may call it."""

    def write(self, stream: StreamName, text: str) -> None:
        """Takes text that can be encoded as UTF-8, in the order in which the program wrote it."""

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:
        """Takes one displayed object: text/plain and other text types as str, images as bytes.

        name: not empty for an object that replaces what the cell has displayed under this name.
        """

    def clear(self) -> None:
        """Drops what the cell has written and displayed so far."""

    def drain(self) -> None:
        """Called at the end of each cell, after its last output."""


class DescriptorSink:
    """Writes to descriptors 1 and 2. Used in a forked child, since the sink belongs to its parent."""

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
    """Discards everything."""

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

    A child made by `os.fork` gets a DescriptorSink, so that it never writes as its parent.
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
        _guard_forks(self)

    def write(self, stream: StreamName, text: str) -> None:
        with self._lock:
            if self._clears:
                self._drop()
            self._parts.append(
                (stream, text)
            )  # at once: a destructor that prints may run at any point of this
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
        """Drops the cell's output. wait: only when there is new output."""
        with self._lock:
            self._clears = True
            if not wait:
                self._drop()

    def flush(self) -> None:
        """Passes everything to the sink.

        A write from inside the sink (a `__del__` that prints, run by the collector) only joins the buffer: the sink's
        own locks need not be reentrant.
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
        """Discards output meanwhile."""
        sink, self._sink = self._sink, Silence()
        try:
            yield
        finally:
            self._sink = sink

    def drain(self) -> None:
        """Passes everything on at the end of a cell, and waits for the sink."""
        self.settle()
        self._clears = False
        self._lines = 0
        self._sink.drain()

    def settle(self) -> None:
        """Flushes, and ends the flushing thread, so that a fork finds none."""
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
    """A hook cannot be removed, so it must not keep the buffer alive."""
    reference = weakref.ref(buffer)

    def before() -> None:
        if (living := reference()) is not None:
            living.settle()

    def in_child() -> None:
        if (living := reference()) is not None:
            living.become_child()

    register_at_fork(before=before, after_in_child=in_child)


_write_text = OutputBuffer.write
_flush_text = OutputBuffer.flush


class CellStream(io.TextIOBase):
    """A text stream into an OutputBuffer. Never closed, never a terminal; `buffer` takes bytes in UTF-8."""

    mode = "w"
    line_buffering = True
    write_through = False

    def __init__(self, output: OutputBuffer, stream: StreamName) -> None:
        super().__init__()
        self._output = output
        self._stream: StreamName = stream
        self._bytes = _ByteStream(self)

    @property
    def name(self) -> str:
        return f"<{self._stream}>"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> _ByteStream:
        return self._bytes

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        plain = str.__str__(text)
        if plain:
            _write_text(self._output, self._stream, plain)
        return len(plain)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        _flush_text(self._output)

    def close(self) -> None:
        """Flushes only: code that closes stdout out of habit would lose all later output."""
        self.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if self._stream == "stdout" else 2

    def reconfigure(self, **_options: object) -> None:
        """Accepts the options of `io.TextIOWrapper.reconfigure`; the stream stays UTF-8 and line buffered."""


class _ByteStream(io.RawIOBase):
    """Bytes into a CellStream, decoded as UTF-8 across write boundaries."""

    def __init__(self, text: CellStream) -> None:
        super().__init__()
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    @property
    def name(self) -> str:
        return self._text.name

    @property
    def raw(self) -> _ByteStream:
        return self

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data)
        self._text.write(self._decoder.decode(view.tobytes()))
        return view.nbytes

    def flush(self) -> None:
        self._text.flush()

    def close(self) -> None:
        self.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()
