"""The destination of a kernel's output: frames to the supervisor, in the order in which the program made it.

Python-level output is sent as frames. Output of child processes and C code to descriptors 1 and 2 goes through pipes
that the supervisor reads itself. To keep both in one order, a frame is only sent when the pipes are empty, and the
supervisor empties its socket before it looks at the pipes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import termios
import threading
import time
from typing import Literal

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import MAX_PACKET, Send

__builtins__ = BUILTINS

CHUNK = 16 * 1024
"""Characters per frame: at most 64 KiB in UTF-8, half of the maximum of a packet."""

SETTLE = 0.2
"""Seconds that a frame waits for the pipes at most: a child that writes forever must not stop the cell."""

_NOTHING = bytes(4)


class FrameSink:
    """The kernel's OutputSink. Any thread may write."""

    def __init__(self, sock: socket.socket, send_packet: Send) -> None:
        self._sock = sock
        self._send_packet = send_packet
        self._sending = threading.Lock()

    def write(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        frame = jail_pb2.WorkerFrame()
        frame.output.is_stderr = stream == "stderr"
        for start in range(0, len(text), CHUNK):
            frame.output.text = utf8_text(text[start : start + CHUNK])
            self._send_in_order(frame, [])

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:
        frame, descriptors = jail_pb2.WorkerFrame(), list[int]()
        frame.display.id = utf8_text(name)
        frame.display.types.extend(utf8_texts(bundle))
        parts = [
            part.encode("utf-8", "replace") if isinstance(part, str) else part for part in bundle.values()
        ]
        content = Content.pack(parts)
        content.to_wire(frame.display.content, descriptors)
        self._send_in_order(frame, descriptors)
        content.close()

    def clear(self) -> None:
        frame = jail_pb2.WorkerFrame()
        frame.display.clears = True
        self._send_in_order(frame, [])

    def drain(self) -> None:
        """Returns when the supervisor has read the pipes' contents."""
        _settle_pipes()

    def send(self, frame: jail_pb2.WorkerFrame, descriptors: list[int] | None = None) -> None:
        with self._sending:
            self._send_packet(self._sock, frame.SerializeToString(), descriptors)

    def send_reply(self, frame: jail_pb2.WorkerFrame, descriptors: list[int]) -> None:
        """Sends a reply of any length. One that carries descriptors is short."""
        if frame.ByteSize() <= MAX_PACKET // 2:
            self.send(frame, descriptors)
            return
        wrapped = jail_pb2.WorkerFrame()
        content = Content.pack([frame.SerializeToString()])
        content.to_wire(wrapped.oversized, descriptors)
        self.send(wrapped, descriptors)
        content.close()

    def _send_in_order(self, frame: jail_pb2.WorkerFrame, descriptors: list[int]) -> None:
        with self._sending:
            _settle_pipes()
            self._send_packet(self._sock, frame.SerializeToString(), descriptors)


def _settle_pipes() -> None:
    if not _pending(1) and not _pending(2):
        return
    deadline = time.monotonic() + SETTLE
    while (_pending(1) or _pending(2)) and time.monotonic() < deadline:
        os.sched_yield()
        time.sleep(0.0002)


def _pending(descriptor: int) -> bool:
    """Whether the pipe holds bytes that its reader has not taken; False for a descriptor that the cell closed."""
    try:
        return fcntl.ioctl(descriptor, termios.FIONREAD, _NOTHING) != _NOTHING
    except OSError:
        return False
