"""Calls from this jail to functions that live in the client: many at once, from any thread or event loop."""

from __future__ import annotations

import itertools
import os
import select
import socket
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_worker.execution.messages import fill_variable
from cenote_worker.execution.results import VariableInfo
from cenote_worker.jail.tracking.process_state.event_loop_state import OwnThread
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import MAX_PACKET, Send, receive_packet

__builtins__ = BUILTINS

_stat = os.stat


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """The client keeps the value and gives a number for it, with its description."""

    number: int
    info: jail_pb2.VariableInfo


@dataclass(slots=True)
class HostCallFailed(Exception):
    """A host function's exception, as data: see `HostFailure`. `type` is only a name."""

    type: str
    message: str
    exceptions: tuple[HostCallFailed, ...] = ()
    cause: HostCallFailed | None = None
    notes: tuple[str, ...] = ()
    base: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


Answer = Content | ReferenceAnswer


_LOOKS: Final = 500
"""Checks of a thread that ends, a millisecond apart: a thousand times what it takes on an idle machine."""

_sleep = time.sleep


def _wait_for_end(joined: threading.Thread) -> None:
    """The kernel has the thread a moment longer than Python, and with it the process would not be copied."""
    for _ in range(_LOOKS):
        try:
            _stat(f"/proc/self/task/{joined.native_id}")
        except OSError:
            return  # also if the jail hides it
        _sleep(0.001)


def _untouched() -> int:
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


@dataclass(slots=True)
class HostChannel:
    """One socket to the supervisor, and the function that sends packets on it. Its reader thread starts with the
    first call.

    The thread ends whenever the process is to be copied, and starts again with the next call, or when one is still
    waiting.
    """

    sock: socket.socket
    send_packet: Send
    made: int = 0
    """Calls from cells so far."""
    _waiting: dict[int, Future[Answer]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _sending: threading.Lock = field(default_factory=threading.Lock)
    _reader: threading.Thread | None = None
    _rest: int = field(default_factory=_untouched)
    _pid: int = field(default_factory=os.getpid)

    def call(
        self,
        target: str,
        method: str,
        arguments: Content,
        *,
        opaque: Content | None = None,
        info: VariableInfo | None = None,
        reference: int = 0,
    ) -> tuple[int, Future[Answer]]:
        """Sends the call; the future gets its answer or HostCallFailed. Closes the contents."""
        if os.getpid() != self._pid:
            raise RuntimeError("host functions can be called from the runtime's own process only, not a fork")
        request, descriptors = jail_pb2.HostRequest(), list[int]()
        number = next(self._numbers)
        self.made += 1
        request.call.id = number
        request.call.target, request.call.method = utf8_text(target), utf8_text(method)
        arguments.to_wire(request.call.arguments, descriptors)
        if opaque is not None:
            opaque.to_wire(request.call.opaque, descriptors)
        if info is not None:
            fill_variable(request.call.info, info)
        request.call.reference = reference
        future: Future[Answer] = Future()
        self._waiting[number] = future
        try:
            self._send(request, descriptors)
        except BaseException:
            self._waiting.pop(number, None)
            raise
        finally:
            arguments.close()
            if opaque is not None:
                opaque.close()
        return number, future

    def cancel(self, number: int) -> None:
        """Drops a call whose answer is no longer needed; an async host function is cancelled."""
        if self._waiting.pop(number, None) is not None:
            request = jail_pb2.HostRequest()
            request.cancel.id = number
            self._send(request, [])

    def release(self, reference: int) -> None:
        request = jail_pb2.HostRequest()
        request.release.reference = reference
        self._send(request, [])

    def rest(self) -> None:
        """Ends the reader thread. See `resume`."""
        reader, self._reader = self._reader, None
        if reader is not None:
            os.eventfd_write(self._rest, 1)
            reader.join()
            os.eventfd_read(self._rest)
            _wait_for_end(reader)

    def resume(self) -> None:
        """Called after `rest`, in the same process."""
        if self._waiting and self._reader is None:
            self._start()

    def revive(self) -> None:
        """Called in a copy of the process that had this channel: pending answers belong to that process."""
        self._pid = os.getpid()
        former, self._rest = self._rest, _untouched()  # that one may have been killed during `rest`
        os.close(former)
        # A late answer to that process must not pass for one of ours.
        self._numbers = itertools.count(time.monotonic_ns())
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()

    def _start(self) -> None:
        self._reader = OwnThread(target=self._read, name="cenote-host-replies", daemon=True)
        self._reader.start()

    def _send(self, request: jail_pb2.HostRequest, descriptors: list[int]) -> None:
        data = request.SerializeToString()
        if len(data) > MAX_PACKET:
            raise ValueError("a host call's names are too long")
        with self._sending:
            if self._reader is None:
                self._start()
            self.send_packet(self.sock, data, descriptors)

    def _read(self) -> None:
        while self._heard() and (packet := receive_packet(self.sock)) is not None:
            reply = jail_pb2.HostReply()
            try:
                reply.ParseFromString(packet.data)
            except DecodeError:
                packet.close()
                continue
            self._settle(reply, packet.descriptors)

    def _heard(self) -> bool:
        """Waits for a packet. False when the thread has to end."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        poll.register(self._rest, select.POLLIN)
        return self._rest not in dict(poll.poll())

    def _settle(self, reply: jail_pb2.HostReply, descriptors: list[int]) -> None:
        future = self._waiting.pop(reply.id, None)
        content = None
        if reply.HasField("value"):
            content = Content.delivered(reply.value, descriptors)
        if future is None or not future.set_running_or_notify_cancel():
            if content is not None:
                content.close()
        elif content is not None:
            future.set_result(content)
        elif reply.HasField("reference"):
            future.set_result(ReferenceAnswer(reply.reference.id, reply.reference.info))
        else:
            future.set_exception(_failure(reply.error))


def _failure(error: jail_pb2.HostError) -> HostCallFailed:
    inner = tuple(map(_failure, error.exceptions))
    cause = _failure(error.cause) if error.HasField("cause") else None
    return HostCallFailed(error.type, error.message, inner, cause, tuple(error.notes), error.base)
