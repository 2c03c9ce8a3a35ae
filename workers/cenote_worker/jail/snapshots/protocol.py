"""Messages between a worker, its frozen copies and their warden: small JSON objects, one per packet.

Also the timer that tells the warden that a cell runs long: it is set with each cell and stopped at its end.
"""

from __future__ import annotations

import array
import os
import socket
import sys
import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail import plain_json
from cenote_worker.jail.sockets import socket_of
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.worker_settings import WorkerSettings
from cenote_worker.transport.packets import has_ended

__builtins__ = BUILTINS

MAX_MESSAGE: Final = 40_960
"""Bytes of one message, either way."""

MAX_LABEL: Final = 100
"""Characters of a label: a list of all of them must fit one message of the warden's."""

MAX_BINDINGS: Final = 24_576
"""Bytes of the bindings of one step: as text they are a third more, and must fit a message."""

FORGONE: Final = b"forgone"
"""What a warden sends to a worker whose copies it has given up."""

BEGINNING: Final = 0
"""In place of a copy's pid: the worker's initial state. No process has that pid."""

LIVE: Final = "live"
"""The message that makes a fork of a copy the worker."""

CELLS: Final = b"cells:"
"""How bindings begin that are cells to run again; see `deltas/replay.py`. Unlike any others."""

_CELLS_TEXT: Final = b2a_base64(CELLS, newline=False).decode()
"""The beginning of their text: three bytes are four characters."""

AT_ONCE: Final = int(socket.MSG_DONTWAIT)
"""For `receive`. An int, since Python code combines the members of enumerations."""

_CLOSE_ON_EXEC: Final = int(socket.MSG_CMSG_CLOEXEC)
_ONE_DESCRIPTOR: Final = socket.CMSG_SPACE(array.array("i").itemsize)

Message = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message and the socket that came with it, if any."""

    message: Message
    attached: socket.socket | None

    @property
    def given_up(self) -> list[int]:
        """Steps whose states are gone, of a warden's message about a copy. Raises ValueError."""
        steps = self.message.get("given_up")
        return [number({"step": step}, "step") for step in steps] if isinstance(steps, list) else []


def send(line: socket.socket, message: Message, attached: socket.socket | None = None) -> None:
    """Raises OSError when there is no receiver, or it has not read for a long time."""
    data = plain_json.dumps(message).encode()
    if attached is None:
        line.send(data, socket.MSG_NOSIGNAL)
        return
    _send_with(line, data, attached)


def send_copied(line: socket.socket, pid: int, step: int, files: int, copy: socket.socket) -> None:
    """Sends what `send` would send for a copy, and raises the same. Written by hand, since it is sent after each
    cell, when each page that this process writes to is copied: a JSON encoder writes to a hundred.
    """
    _send_with(line, _copied(pid, step, files), copy)


def send_initial_state(line: socket.socket, step: int, files: int) -> None:
    """Says that the state of a step is the worker's initial state. Raises OSError."""
    line.send(_copied(BEGINNING, step, files), socket.MSG_NOSIGNAL)


def send_bindings(line: socket.socket, copy: int, step: int, files: int, bindings: bytes) -> None:
    """Says that the state of a step is that of a copy with these bindings. Written by hand as well. Raises OSError.

    files: the version of the working directory that goes with it.
    """
    now, text = time.clock_gettime_ns(time.CLOCK_BOOTTIME), b2a_base64(bindings, newline=False)
    data = b'{"op": "bound", "copy": %d, "step": %d, "files": %d, "at": %d, "bindings": "%s"}'
    line.send(data % (copy, step, files, now, text), socket.MSG_NOSIGNAL)


def unpacked(bindings: str) -> bytes:
    """The bindings that `send_bindings` has sent. Raises ValueError."""
    return a2b_base64(bindings)


def are_cells(bindings: str) -> bool:
    """Whether bindings, as a warden gets them, are cells to run again."""
    return bindings.startswith(_CELLS_TEXT)


def receive(line: socket.socket, flags: int = 0) -> ReceivedMessage | None:
    """The next message; None at the end of the connection. Raises ValueError for an invalid one, BlockingIOError."""
    data, ancillary, _, _ = line.recvmsg(MAX_MESSAGE, _ONE_DESCRIPTOR, _CLOSE_ON_EXEC | flags)
    attached = _attached(ancillary)
    if not data and attached is None and has_ended(line):
        return None
    try:
        message = plain_json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError):
        if attached is not None:
            attached.close()
        raise ValueError("a message that is no JSON object") from None
    return ReceivedMessage(message=message, attached=attached)


def number(message: Message, key: str) -> int:
    """A whole number of a message, from 0 on. Raises ValueError: any process in the jail may have sent it."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"a message with a strange {key}")
    return value


def _copied(pid: int, step: int, files: int) -> bytes:
    return b'{"op": "copy", "pid": %d, "step": %d, "files": %d}' % (pid, step, files)


def _send_with(line: socket.socket, data: bytes, attached: socket.socket) -> None:
    rights = array.array("i", [attached.fileno()])
    line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_NOSIGNAL)


def _attached(ancillary: list[tuple[int, int, bytes]]) -> socket.socket | None:
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(payload) >= 4:
            return _socket(int.from_bytes(payload[:4], sys.byteorder))
    return None


def _socket(descriptor: int) -> socket.socket:
    """Raises ValueError, and closes the descriptor, when it is no socket."""
    try:
        return socket_of(descriptor)
    except OSError:
        os.close(descriptor)
        raise ValueError("a descriptor that is no socket") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """is_kept: whether this is the first worker, whose initial state can be restored. wanted: the message for a
    worker that is to continue from there.
    """

    is_kept: bool = False
    wanted: Message | None = None

    @classmethod
    def told(cls, settings: WorkerSettings) -> Self:
        if settings.wanted:
            return cls(wanted=plain_json.loads(settings.wanted))
        return cls(is_kept=settings.warden >= 0)

    @property
    def is_parked(self) -> bool:
        """Whether it is wanted for the last state of a worker: its files are in place."""
        return bool((self.wanted or {}).get("parked"))

    @property
    def files(self) -> int:
        """The version of the working directory that belongs to it. Raises ValueError."""
        return number(self.wanted or {}, "files")


FIRST_PULSE: Final = 4_000_000
"""Nanoseconds in which hardly more pages can be copied than are written around any cell (`ORDINARY`). A cell that
ends sooner wakes no warden."""

PULSE_INTERVAL: Final = 2_000_000
"""Nanoseconds between two pulses: a cell that sweeps pays for its snapshot continuously."""


@contextmanager
def pulse_timer(timer: int) -> Iterator[None]:
    """Runs the timer while a cell runs. timer: -1 for none."""
    if timer < 0:
        yield
        return
    _set_timer(timer, FIRST_PULSE, PULSE_INTERVAL)
    try:
        yield
    finally:
        _set_timer(timer, 0, 0)


def wake_warden(timer: int) -> None:
    """Wakes the warden for a caller that waits for it, since the warden may leave messages unread for a while. Not
    for a cell that shares memory with a copy: the pulse would count as that cell's. timer: -1 for none.
    """
    if timer >= 0:
        _set_timer(timer, 1, 0)


def _set_timer(timer: int, first: int, every: int) -> None:
    try:
        libc.set_timer(timer, first, every)
    except OSError:
        return  # a cell has closed it
