"""The journal of one runtime: what a process that takes the runtime over has to know of it.

It is an append-only file in memory: its contents survive the process that wrote it, killed at any instruction. Each
entry is its length and its bytes, written by one call at the end of the file. The kernel raises the size only over
bytes that it has copied, so the size is the commit: an entry is complete, or it reaches beyond the end. Among the
entries are the outcomes of requests with a key.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self, assert_never

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_security.errors import CallTimeoutError, JailLostError, NotKeptError, UnavailableError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.execution.results import Built, ExecutionResult, Patched, Rollback
from cenote_worker.record.journal_replay import JournalReplay
from cenote_worker.supervisor import frame_parser
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.wire.patches import from_built, from_patched, to_built, to_patched
from cenote_worker.wire.replies import from_rollback, to_rollback
from cenote_worker.wire.results import from_result, to_result

_LENGTH: Final = struct.Struct("<I")


_WHOLE_FILE: Final = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""


class JournalFile:
    """Owns its descriptor. One writer: it holds a lock on the file that ends with it, or with its process."""

    def __init__(self, descriptor: int) -> None:
        """Opens a file that another process has written; an incomplete entry is cut off.

        Raises OSError while that process lives, or another has taken the file over; the descriptor stays the
        caller's then.
        """
        self.descriptor = descriptor
        self._lock = _locked(descriptor)
        self.size = _complete(self.read())
        os.ftruncate(descriptor, self.size)

    @classmethod
    def create(cls, entries: Iterable[journal_pb2.JournalEntry] = ()) -> Self:
        file = cls(os.memfd_create("cenote-journal", os.MFD_CLOEXEC))
        try:
            file._write(b"".join(map(_encoded, entries)))
        except BaseException:
            file.close()
            raise
        return file

    def append(self, entry: journal_pb2.JournalEntry) -> None:
        """Raises OSError when the machine has no memory for it; the file is then unchanged."""
        self._write(_encoded(entry))

    def _write(self, data: bytes) -> None:
        written = os.pwrite(self.descriptor, data, self.size)
        if written != len(data):
            os.ftruncate(self.descriptor, self.size)
            raise OSError(f"{written} bytes of a journal's {len(data)} could be written")
        self.size += written

    def read(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def close(self) -> None:
        descriptors, self.descriptor, self._lock = (self.descriptor, self._lock), -1, -1
        for descriptor in descriptors:  # other files may soon have these numbers
            os.close(descriptor)


def _locked(descriptor: int) -> int:
    """The descriptor that holds the lock. It opens the file anew, and is never sent or copied.

    The descriptor store has a copy of the other one, and would hold a lock of that open file. A lock of the process
    would end when any descriptor of the file is closed, such as a copy of it that waited to be sent. Both kinds
    exclude each other, so this one excludes a process of an earlier version, too.
    """
    lock = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _encoded(entry: journal_pb2.JournalEntry) -> bytes:
    data = entry.SerializeToString()
    return _LENGTH.pack(len(data)) + data


def entries_of(data: bytes) -> Iterator[journal_pb2.JournalEntry]:
    """The complete entries."""
    end = 0
    while (start := end + _LENGTH.size) <= len(data):
        end = start + _LENGTH.unpack_from(data, end)[0]
        if end > len(data):
            return
        yield journal_pb2.JournalEntry.FromString(data[start:end])


def _complete(data: bytes) -> int:
    """Bytes of all complete entries."""
    end = 0
    while end + _LENGTH.size <= len(data):
        following = end + _LENGTH.size + _LENGTH.unpack_from(data, end)[0]
        if following > len(data):
            break
        end = following
    return end


def to_entry(key: str, outcome: Outcome) -> journal_pb2.Settled:
    """Only requests that change or store something have a key."""
    settled = make(journal_pb2.Settled, key=key)
    match outcome:
        case ExecutionResult():
            settled.result.CopyFrom(from_result(outcome))
        case frame_parser.DoneReply():
            settled.done.SetInParent()
        case frame_parser.RefusedReply():
            settled.refusal.CopyFrom(_refusal(outcome))
        case frame_parser.KeptReply():
            settled.kept = outcome.step
        case Patched():
            settled.applied.CopyFrom(from_patched(outcome))
        case Built():
            settled.built.CopyFrom(from_built(outcome))
        case Rollback():
            settled.rolled_back.CopyFrom(from_rollback(outcome))
        case NotKeptError(target=str(label)):
            settled.no_such_label = utf8_text(label)
        case NotKeptError(target=int(step)):
            settled.no_such_step = step
        case UnavailableError():
            settled.nothing_ran = True
        case CallTimeoutError():
            settled.refusal.message = utf8_text(str(outcome))
        case JailLostError():
            settled.lost = utf8_text(outcome.reason)
        case NotDurableError():
            settled = to_entry(key, _carried_out(outcome))
            settled.not_durable = utf8_text(outcome.reason)
        case _:
            settled.lost = utf8_text(str(outcome))
    return settled


def from_entry(settled: journal_pb2.Settled) -> Outcome:
    """The outcome of an entry that has one."""
    outcome = _given(settled)
    if not settled.not_durable:
        return outcome
    return NotDurableError(
        None if isinstance(outcome, frame_parser.DoneReply) else outcome, settled.not_durable
    )


def _given(settled: journal_pb2.Settled) -> Outcome:
    match settled.WhichOneof("outcome"):
        case "result":
            return to_result(settled.result)
        case "done":
            return frame_parser.DoneReply()
        case "refusal":
            refusal = settled.refusal
            nearest = tuple(refusal.nearest)
            return frame_parser.RefusedReply(refusal.kind, refusal.name, refusal.message, nearest)
        case "kept":
            return frame_parser.KeptReply(settled.kept)
        case "rolled_back":
            return to_rollback(settled.rolled_back)
        case "applied":
            return to_patched(settled.applied)
        case "built":
            return to_built(settled.built)
        case "no_such_step":
            return NotKeptError(settled.no_such_step)
        case "no_such_label":
            return NotKeptError(settled.no_such_label)
        case "lost":
            return JailLostError(settled.lost)
        case "nothing_ran" | None:
            raise ValueError("an entry without an outcome")
        case other:
            assert_never(other)


def _refusal(refused: frame_parser.RefusedReply) -> jail_pb2.Refusal:
    message = make(jail_pb2.Refusal, name=refused.name, message=refused.message, nearest=refused.nearest)
    if refused.kind in jail_pb2.Refusal.Kind.values():  # the jail chose the number
        message.kind = jail_pb2.Refusal.Kind.ValueType(refused.kind)
    return message


def _carried_out(error: NotDurableError) -> Outcome:
    """The outcome of the call that could not be made durable."""
    match error.outcome:
        case ExecutionResult() | Rollback() | Patched() | Built() as given:
            return given
    return frame_parser.DoneReply()


_log = logging.getLogger("cenote.journal")

TIDY_SIZE: Final = 256 * 1024
"""Bytes. A smaller journal is not worth rewriting: reading one of this size takes a few milliseconds."""


class Journal:
    """Safe to use from several threads.

    limit: see JournalReplay. handed: called with the descriptor of each new file, to store it for a successor.
    broken: called once when nothing can be written any more: a successor must not rely on the file.
    """

    def __init__(
        self, file: JournalFile, limit: int, handed: Callable[[int], None], broken: Callable[[], None]
    ) -> None:
        self._file = file
        self._limit = limit
        self._handed = handed
        self._broken = broken
        self._lock = threading.Lock()
        self._dead = False
        self._stays = file.size
        """Bytes that the last rewrite left, or that a rewrite would leave at most."""
        story = self.story()
        self.jail = story.current.jail.jail
        """Number of the runtime's current jail; 0 for none."""
        self._aside = story.aside.jail.jail if story.aside is not None else 0
        """Number of the jail that is set aside, or was last."""
        self._numbered = max(self.jail, self._aside)

    def hand(self) -> None:
        """Calls `handed` again."""
        with self._lock:
            if not self._dead:
                self._handed(self._file.descriptor)

    def story(self) -> JournalReplay:
        """The current state of the runtime, replayed from the journal."""
        with self._lock:
            return JournalReplay.of(entries_of(self._file.read()), self._limit)

    def write(self, entry: JournalEntry) -> None:
        with self._lock:
            self._write(entry)

    def write_of(self, jail: int, entry: JournalEntry) -> None:
        """Writes an entry of a jail. Dropped once there is a later jail, unless this one is set aside."""
        with self._lock:
            if jail in (self.jail, self._aside):
                entry.aside = jail != self.jail
                self._write(entry)

    def _write(self, entry: JournalEntry) -> None:
        if self._dead:
            return
        try:
            self._file.append(entry)
        except OSError:
            _log.exception("a journal cannot be written any more; its runtime will end with this process")
            self._dead = True
            self._broken()

    def close(self) -> None:
        with self._lock:
            self._dead = True
            self._file.close()

    def begin(self, ends_at: float | None) -> int:
        """A jail is about to be started. Gives its number."""
        with self._lock:
            self._numbered += 1
            self.jail = self._numbered
            self._write(JournalEntry(began=journal_pb2.Began(jail=self.jail, ends_at=ends_at or 0.0)))
            return self.jail

    def set_aside(self, *, intact: bool) -> None:
        """The jail is set aside from now on: see the entry."""
        with self._lock:
            self._write(JournalEntry(set_aside=journal_pb2.SetAside(intact=intact)))
            self.jail, self._aside = 0, self.jail

    def taken_back(self) -> None:
        """The jail that was set aside is the runtime's again."""
        with self._lock:
            self._write(JournalEntry(taken_back=journal_pb2.TakenBack()))
            self.jail, self._aside = self._aside, 0

    def filled(self, head: int, steps: int) -> None:
        """The jail has its initial contents: the state after step `head`. steps: their number so far."""
        if steps:
            self.write(JournalEntry(counted=journal_pb2.Counted(steps=steps)))
        if head:
            self.write(JournalEntry(moved=journal_pb2.Moved(step=head)))
        self.write(JournalEntry(filled=journal_pb2.Filled()))

    def mourned(self, jail: int) -> None:
        """That jail has ended for good: nothing more comes from it."""
        self.write_of(jail, JournalEntry(mourned=journal_pb2.Mourned()))

    def settled(self, key: str, outcome: Outcome) -> None:
        self.write(JournalEntry(settled=to_entry(key, outcome)))

    def patch_begun(self, key: str, head: int, steps: int) -> None:
        """A patch is about to be applied."""
        self.write(JournalEntry(patch_begun=make(journal_pb2.PatchBegun, key=key, head=head, steps=steps)))

    def accepted(self, injection: int, superseded: list[int]) -> None:
        """Later jails also begin with this injection, 0 for none, and no longer with the superseded ones."""
        self.write(JournalEntry(accepted=journal_pb2.Accepted(injection=injection, superseded=superseded)))

    def tidy(self, *, resting: bool) -> None:
        """Rewrites a journal that has become long. Not allowed between journaling a packet and taking it."""
        with self._lock:
            if self._dead or self._file.size <= self._room(resting=resting):
                return
            try:
                story = JournalReplay.of(entries_of(self._file.read()), self._limit)
                fresh = JournalFile.create(story.retold())
            except OSError:
                return  # no memory for a second one: keep the long one
            self._stays = fresh.size
            old, self._file = self._file, fresh
            self._handed(fresh.descriptor)
            old.close()

    def _room(self, *, resting: bool) -> int:
        """Bytes that it may have: enough that rewrites are rare."""
        return self._stays + max(TIDY_SIZE, self._stays) if resting else 2 * max(TIDY_SIZE, 2 * self._stays)
