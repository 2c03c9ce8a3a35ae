"""The journal of one jail that outlives its supervisor: an entry is there before what it describes takes effect."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make, utf8_texts
from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_security.errors import MalformedValueError
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import StreamName
from cenote_worker.record.journal import Journal
from cenote_worker.record.journal_replay import JailReplay
from cenote_worker.supervisor.account.jail_account import UsageBaseline
from cenote_worker.supervisor.exit_reason import JailExit, WorkerRestart
from cenote_worker.supervisor.frame_parser import MAX_REPLY
from cenote_worker.supervisor.requests import JailRequest
from cenote_worker.transport.packets import Packet, receive_packet
from cenote_worker.wire.results import from_result

SO_PEEK_OFF: Final = 42
"""Since Linux 3.4. The offset of the next peek into a socket: after the packet that was peeked at and not yet taken.

So the kernel remembers, even when the process dies, whether the packet that was journaled last is still in the
socket. Comparing it with the next packet would not do: a program may print the same line twice.
"""

_LOOK: Final = int(socket.MSG_PEEK)
"""A number: combining members of enumerations runs Python code, which would cost each packet time."""


class JailJournal:
    """See JournalPort and HostLog. Writes nothing once the runtime has a later jail, unless this one is set aside.

    limit: bytes of one displayed object. gone: called when the jail has ended and all requests were answered.
    """

    def __init__(self, journal: Journal, number: int, limit: int, gone: Callable[[], None]) -> None:
        self._journal = journal
        self._number = number
        self._most = max(limit, MAX_REPLY)
        self._gone = gone
        self._attach = False

    def begin(self, sock: socket.socket) -> None:
        """Begins with a fresh jail."""
        stood(sock, untaken=False)

    def take_up(self, sock: socket.socket, story: JailReplay) -> None:
        """Continues after another process: the last packet in `story` is removed if it is still in the socket."""
        if stood(sock, untaken=story.untaken):
            packet = receive_packet(sock)
            if packet is not None:
                packet.close()
        if story.untaken:
            self._write(JournalEntry(taken=journal_pb2.Taken()))
        self._attach = story.request is not None and bool(story.request.asked.key)

    def _write(self, entry: JournalEntry) -> None:
        self._journal.write_of(self._number, entry)

    def asked(self, number: int, request: JailRequest, started: float, begun: UsageBaseline) -> None:
        self._attach = bool(request.key)
        asked = make(
            journal_pb2.Asked,
            number=number,
            ask=request.ask.name,
            key=request.key,
            step=request.step,
            timeout=request.timeout or 0.0,
            started=started,
            injection=request.injection,
            cpu=begun.cpu,
            written=begun.written,
            kills=begun.kills,
            author=request.seat.author,
            private=request.seat.private,
            label=request.label,
            code=request.code.encode("utf-8", "surrogatepass"),
            cause=request.cause,
            token=request.token,
            atomic=request.message.execute.atomic,
        )
        if request.undoes is not None:
            asked.failed.CopyFrom(from_result(request.undoes))
        self._write(JournalEntry(asked=asked))

    def sent(self) -> None:
        self._write(JournalEntry(sent=journal_pb2.Sent()))

    def unsent(self) -> None:
        self._write(JournalEntry(unsent=journal_pb2.Unsent()))

    def receive(self, sock: socket.socket) -> Packet | None:
        """Peeks at the packet, journals it, takes it, and journals that it was taken."""
        seen = receive_packet(sock, _LOOK)
        if seen is not None:
            try:
                arrived = journal_pb2.Arrived(data=seen.data, attached=self._attached(seen))
            finally:
                seen.close()
            self._write(JournalEntry(arrived=arrived))
        taken = receive_packet(sock)
        if taken is not None:
            self._write(JournalEntry(taken=journal_pb2.Taken()))
            self._journal.tidy(resting=False)
        return taken

    def _attached(self, packet: Packet) -> list[bytes]:
        """Copies of the attachments of a packet, for requests that a client may repeat.

        The jail states the sizes: the reader of the packet, or of the journal, refuses what is too large.
        """
        if not self._attach:
            return []
        return [_bytes_of(descriptor, self._most) for descriptor in packet.descriptors]

    def printed(self, stream: StreamName, text: str) -> None:
        self._write(JournalEntry(printed=make(journal_pb2.Printed, is_stderr=stream == "stderr", text=text)))
        self._journal.tidy(resting=False)  # code that writes without end need not send a packet

    def interrupted(self, at: float, *, expired: bool) -> None:
        self._write(JournalEntry(interrupted=journal_pb2.Interrupted(at=at, expired=expired)))

    def moved(self, step: int, setback: WorkerRestart | None) -> None:
        moved = journal_pb2.Moved(step=step)
        if setback is not None:
            death = setback.death
            moved.reason, moved.detail, moved.text = utf8_texts((death.reason, death.detail, death.text))
            moved.before, moved.outside = setback.before, death.outside
        self._write(JournalEntry(moved=moved))

    def mourned(self) -> None:
        self._journal.mourned(self._number)

    def rest(self) -> None:
        self._journal.tidy(resting=True)

    def ended(self, death: JailExit) -> None:
        ended = make(
            journal_pb2.Ended,
            reason=death.reason,
            detail=death.detail,
            text=death.text,
            outside=death.outside,
        )
        self._write(JournalEntry(ended=ended))
        self._gone()

    # -- HostLog --

    def receive_call(self, sock: socket.socket) -> Packet | None:
        """A packet of the host channel: a call is journaled while it is still in the socket."""
        seen = receive_packet(sock, _LOOK)
        if seen is not None:
            seen.close()
            self._note_call(seen.data)
        taken = receive_packet(sock)
        self._journal.tidy(resting=False)
        return taken

    def _note_call(self, data: bytes) -> None:
        try:
            request = jail_pb2.HostRequest.FromString(data)
        except DecodeError:  # its next reader will refuse it
            return
        if request.HasField("call"):
            self._write(JournalEntry(host_called=journal_pb2.HostCalled(id=request.call.id)))

    def answered(self, call_id: int) -> None:
        self._write(JournalEntry(host_answered=journal_pb2.HostAnswerSent(id=call_id)))


def stood(sock: socket.socket, *, untaken: bool) -> bool:
    """Whether the packet that was journaled last is still in the socket. Resets the peek offset to 0."""
    looked_at = sock.getsockopt(socket.SOL_SOCKET, SO_PEEK_OFF)
    sock.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, 0)
    return untaken and looked_at > 0


def _bytes_of(descriptor: int, most: int) -> bytes:
    """The bytes of sealed memory; nothing else is ever read. The next reader of the packet refuses anything else."""
    try:
        with SealedMemory.receive(os.dup(descriptor), most) as memory:
            return bytes(memory.map())
    except MalformedValueError:
        return b""
