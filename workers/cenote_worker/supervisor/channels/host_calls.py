"""The socket on which a jail calls functions of its client: checked calls in, answers out.

A jail may be slow to take answers, or never take them. Answers are queued, so that no other thread waits for it.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation, UnavailableError
from cenote_worker.execution.messages import fill_variable
from cenote_worker.execution.results import HostFailure, VariableInfo
from cenote_worker.process.patient_wait import is_ready
from cenote_worker.process.threads import begin_thread
from cenote_worker.supervisor.frame_parser import read_info
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import Packet, PacketAssembly, receive_packet, send_packet

MAX_WAITING: Final = 10_000
"""Answers that wait for room in the socket: as many as there may be calls."""

PATIENCE: Final = 5.0
"""Seconds that a full socket may stay full before its jail counts as broken."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A packet, and the contents that travel with it. The owner of this object owns them."""

    call_id: int
    data: bytes
    descriptors: list[int]
    content: Content | None

    @property
    def size(self) -> int:
        """Bytes of the packet and its contents."""
        return len(self.data) + (self.content.size if self.content is not None else 0)

    def close(self) -> None:
        if self.content is not None:
            self.content.close()


class HostAnswers:
    """The sending half of a host channel. Safe to use from any thread: the reactor's, a client's event loop.

    limit: bytes that may wait. sent: called with the number of a call whose answer has left. What does not fit the
    socket waits here, and a thread sends it: one for a jail that does not read, none for any other.
    """

    def __init__(self, sock: socket.socket, limit: int, sent: Callable[[int], None]) -> None:
        self._sock = sock
        self._limit = limit
        self._sent = sent
        self._lock = threading.Lock()
        self._waiting: deque[Outgoing] = deque()
        self._size = 0
        self._sending = False
        self._open = True

    def put(self, answer: Outgoing) -> None:
        """Sends the answer, now or later; takes it over. Never waits for the jail."""
        with self._lock:
            if not self._open:
                answer.close()
            elif self._waiting or not self._sends(self._sock, answer):
                self._keep(answer)

    def close(self) -> None:
        """Nothing is sent any more. The owner closes the socket."""
        with self._lock:
            self._give_up()

    def _keep(self, answer: Outgoing) -> None:
        self._waiting.append(answer)
        self._size += answer.size
        if len(self._waiting) > MAX_WAITING or self._size > self._limit:
            self._hang_up()
        elif not self._sending:
            self._begin()

    def _begin(self) -> None:
        try:
            # While the thread waits, the socket may be closed and its number be reused.
            own = self._sock.dup()
        except OSError:  # no descriptor is left for it
            self._hang_up()
            return
        try:
            begin_thread("cenote-answers", partial(self._send_later, own))
        except UnavailableError:
            own.close()
            self._hang_up()
        else:
            self._sending = True

    def _send_later(self, sock: socket.socket) -> None:
        with sock:
            while is_ready(sock, PATIENCE, select.POLLOUT):
                with self._lock:
                    while self._waiting and self._sends(sock, self._waiting[0]):
                        self._size -= self._waiting.popleft().size
                    if not self._waiting:
                        self._sending = False
                        return
            with self._lock:
                self._sending = False
                self._hang_up()

    def _sends(self, sock: socket.socket, answer: Outgoing) -> bool:
        """False when there is no room."""
        try:
            send_packet(sock, answer.data, answer.descriptors)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the jail is gone; its supervisor knows
        self._sent(answer.call_id)
        answer.close()
        return True

    def _hang_up(self) -> None:
        """The jail gets nothing any more, and nothing is read from it."""
        if self._open:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._give_up()

    def _give_up(self) -> None:
        self._open = False
        for answer in self._waiting:
            answer.close()
        self._waiting.clear()
        self._size = 0


MAX_PENDING = 10_000
"""Calls of one jail that may wait for their answers."""

MAX_ATTACHED = 256
"""Calls with contents in memory of their own. Each is a descriptor or two here, and a process has some ten thousand
for all its jails."""

MAX_NAME = 200
"""Characters of a target's or a method's name."""

MAX_ERROR = 10_000
"""Characters of a host function's exception; for a group, as many again for all its members together."""

MAX_CLASS = 1_000
MAX_GROUPS = 5
MAX_IN_GROUPS = 20
MAX_NOTES = 20
"""Characters of a class's name; depth of exception groups, and exceptions in all of them together."""

Source = TypeVar("Source")

LEFT = "the process that served this host call was replaced before it answered; it may have been carried out, or not"


@dataclass(frozen=True, slots=True)
class HostCall:
    """A jail wants `target` (and there `method`, if not empty) called. The receiver owns the contents.

    info: the jail's description of `opaque`.
    """

    id: int
    target: str
    method: str
    arguments: Content
    opaque: Content | None
    reference: int
    info: VariableInfo | None = None

    @property
    def origin(self) -> int:
        """The number that the jail gave the call: here, its `id`."""
        return self.id

    @property
    def attached(self) -> bool:
        """Whether it holds descriptors."""
        return self.arguments.memory is not None or (
            self.opaque is not None and self.opaque.memory is not None
        )

    def close(self) -> None:
        self.arguments.close()
        if self.opaque is not None:
            self.opaque.close()


@dataclass(frozen=True, slots=True)
class HostReference:
    """The client keeps the value; the jail gets a number for it."""

    number: int
    info: VariableInfo


HostAnswer = Content | HostFailure | HostReference


class HostHandler(Protocol):
    """Carries out host calls. Called on the reactor's thread: must not block."""

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        """Starts the call; `line.answer` is called once, from any thread."""

    def cancel(self, call_id: int) -> None:
        """The jail does not wait for this call any more."""

    def release(self, reference: int) -> None:
        """The jail has dropped a reference."""

    def ended(self) -> None:
        """The jail has ended: cancel everything."""


class HostLog(Protocol):
    """The record of host calls, for a supervisor that may have to take over."""

    def receive_call(self, sock: socket.socket) -> Packet | None:
        """As `receive_packet` does."""

    def answered(self, call_id: int) -> None:
        """An answer has left, or the jail does not wait for it any more."""


class NoHostLog:
    """The HostLog of a jail that ends with its process."""

    def receive_call(self, sock: socket.socket) -> Packet | None:
        return receive_packet(sock)

    def answered(self, call_id: int) -> None:
        pass


class HostWitness(Protocol):
    """Sees calls and answers pass. It takes nothing over, and must not block."""

    def called(self, call: HostCall) -> None:
        """A jail's call is about to be carried out."""

    def answered(self, call_id: int, answer: HostAnswer) -> None:
        """Its answer is about to be sent, from any thread."""


class HostCallChannel:
    """The supervisor's end of a jail's host channel."""

    def __init__(
        self,
        sock: socket.socket,
        handler: HostHandler,
        value_limit: int,
        assembly: PacketAssembly | None = None,
        log: HostLog | None = None,
        orphans: Iterable[int] = (),
        witness: HostWitness | None = None,
    ) -> None:
        """assembly: for a jail that sends its packets in pieces.

        orphans: calls that a former supervisor received and may not have answered.
        """
        sock.setblocking(False)
        self._sock = sock
        self._handler = handler
        self._value_limit = value_limit
        self._assembly = assembly
        self._log = log or NoHostLog()
        self._orphans = frozenset(orphans)
        self._witness = witness
        self._pending: set[int] = set()
        self._attached: set[int] = set()
        self._answers = HostAnswers(sock, value_limit, self._log.answered)

    @property
    def descriptor(self) -> int:
        return self._sock.fileno()

    def disown(self) -> None:
        """Answers the orphans with a failure: what became of them is unknown."""
        for call_id in self._orphans:
            self.answer(call_id, HostFailure("RuntimeError", LEFT))

    def read(self, most: int) -> bool:
        """Takes up to `most` packets. False at the end. Raises ProtocolViolation."""
        for _ in range(most):
            try:
                packet = self._log.receive_call(self._sock)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if packet is None:
                return False
            whole = packet if self._assembly is None else self._assembly.take(packet)
            if whole is not None:
                self._hear(whole)
        return True

    def answer(self, call_id: int, answer: HostAnswer) -> None:
        """Sends an answer, from any thread; takes its content over. Late answers to a dead jail are dropped."""
        if self._witness is not None:
            self._witness.answered(call_id, answer)
        reply, descriptors = jail_pb2.HostReply(id=call_id), list[int]()
        _fill(reply, answer, descriptors)
        self._pending.discard(call_id)
        self._attached.discard(call_id)
        content = answer if isinstance(answer, Content) else None
        self._answers.put(Outgoing(call_id, reply.SerializeToString(), descriptors, content))

    def abandon(self) -> None:
        """The process that made the pending calls is gone, and nothing waits for their answers."""
        pending, self._pending, self._attached = self._pending, set(), set()
        for call_id in pending:
            self._handler.cancel(call_id)

    def close(self) -> None:
        self._handler.ended()
        if self._assembly is not None:
            self._assembly.close()
        self._answers.close()
        self._sock.close()

    def _hear(self, packet: Packet) -> None:
        try:
            request = _parse(packet.data)
            match request.WhichOneof("body"):
                case "call":
                    self._call(request.call, packet.descriptors)
                case "cancel":
                    self._cancel(request.cancel.id)
                case "release":
                    self._handler.release(request.release.reference)
                case _:
                    raise ProtocolViolation("a host request without a body")
            if packet.descriptors:
                raise ProtocolViolation("a host request with descriptors that nothing in it names")
        finally:
            packet.close()

    def _cancel(self, call_id: int) -> None:
        if call_id not in self._pending:  # it may have been answered; and a jail may send anything
            return
        self._pending.discard(call_id)
        self._attached.discard(call_id)
        self._log.answered(call_id)  # or it would be on record for as long as the jail lives
        self._handler.cancel(call_id)

    def _call(self, message: jail_pb2.HostCall, descriptors: list[int]) -> None:
        if message.id in self._pending:
            raise ProtocolViolation("two host calls with one number")
        if len(message.target) > MAX_NAME or len(message.method) > MAX_NAME:
            raise ProtocolViolation("a host call to an endless name")
        arguments = Content.from_wire(message.arguments, descriptors, self._value_limit)
        opaque = None
        if message.HasField("opaque"):
            try:
                opaque = Content.from_wire(message.opaque, descriptors, self._value_limit)
            except ProtocolViolation:
                arguments.close()
                raise
        info = read_info(message.info) if message.HasField("info") else None
        target, method = message.target, message.method
        call = HostCall(message.id, target, method, arguments, opaque, message.reference, info)
        if message.id in self._orphans:  # it was still in the socket, and has its answer
            call.close()
            return
        if len(self._pending) >= MAX_PENDING:
            call.close()
            self.answer(message.id, HostFailure("RuntimeError", f"over {MAX_PENDING} host calls at once"))
            return
        if call.attached:
            if len(self._attached) >= MAX_ATTACHED:
                call.close()
                self.answer(message.id, _TOO_LARGE)
                return
            self._attached.add(message.id)
        self._pending.add(message.id)
        if self._witness is not None:
            self._witness.called(call)
        self._handler.call(self, call)


_TOO_LARGE = HostFailure(
    "RuntimeError",
    f"over {MAX_ATTACHED} host calls with large arguments at once; wait for some of them first",
)


def _parse(data: bytes) -> jail_pb2.HostRequest:
    try:
        return jail_pb2.HostRequest.FromString(data)
    except DecodeError:
        raise ProtocolViolation("a packet on the host channel that is no request") from None


def from_failure(failure: HostFailure) -> jail_pb2.HostError:
    message = make(
        jail_pb2.HostError,
        type=failure.type,
        message=failure.message,
        exceptions=map(from_failure, failure.exceptions),
        notes=failure.notes,
        base=failure.base,
    )
    if failure.cause is not None:
        message.cause.CopyFrom(from_failure(failure.cause))
    return message


def to_failure(message: jail_pb2.HostError) -> HostFailure:
    """Bounded, so the message may come from an untrusted process."""
    return bounded_failure(message, _read)


def _read(message: jail_pb2.HostError) -> Failed[jail_pb2.HostError]:
    return Failed(
        kind=message.type,
        text=message.message,
        members=message.exceptions,
        cause=message.cause if message.HasField("cause") else None,
        notes=message.notes,
        base=message.base,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Generic[Source]):
    """The content of an exception. kind: the name of its class. members: of an exception group. base: see
    HostFailure.
    """

    kind: str
    text: str
    members: Sequence[Source] = ()
    cause: Source | None = None
    notes: Sequence[str] = ()
    base: str = ""


def bounded_failure(source: Source, read: Callable[[Source], Failed[Source]]) -> HostFailure:
    """Bounded so that a jail gets it in one packet."""
    exceptions, characters = MAX_IN_GROUPS, MAX_ERROR

    def taken(text: str) -> str:
        nonlocal characters
        text = text[: max(characters, 0)]
        characters -= len(text)
        return text

    def further(each: Source, depth: int) -> HostFailure | None:
        nonlocal exceptions
        if depth >= MAX_GROUPS or exceptions <= 0 or characters <= 0:
            return None
        exceptions -= 1
        return within(each, depth + 1)

    def within(each: Source, depth: int) -> HostFailure:
        failed = read(each)
        text = taken(failed.text) if depth else failed.text[:MAX_ERROR]
        inner = [found for member in failed.members if (found := further(member, depth)) is not None]
        cause = None if failed.cause is None else further(failed.cause, depth)
        notes = tuple(taken(note) for note in failed.notes[:MAX_NOTES])
        base = failed.base[:MAX_CLASS]
        return HostFailure(failed.kind[:MAX_CLASS], text, tuple(inner), cause, notes, base)

    return within(source, 0)


def _fill(reply: jail_pb2.HostReply, answer: HostAnswer, descriptors: list[int]) -> None:
    if isinstance(answer, HostFailure):
        reply.error.CopyFrom(from_failure(answer))
    elif isinstance(answer, HostReference):
        reply.reference.id = answer.number
        fill_variable(reply.reference.info, answer.info)
    else:
        answer.to_wire(reply.value, descriptors)
