"""What is written down of one runtime for a successor of its process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import journal_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_worker.journal.file import JournalFile, entries_of
from cenote_worker.journal.outcomes import to_entry
from cenote_worker.journal.story import Story
from cenote_worker.supervisor.requests import Outcome

_log = logging.getLogger("cenote.journal")

TIDY_SIZE: Final = 256 * 1024
"""Bytes. A smaller journal is not worth writing anew: reading one of this size takes a few milliseconds."""


class Journal:
    """Safe to use from several threads.

    limit: see Story. handed: called with the descriptor of each new file, which a successor shall find.
    broken: called once when nothing can be written any more: a successor must not go by what is there.
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
        """Bytes that writing it anew has left, or would leave at the most."""
        story = self.story()
        self.jail = story.current.jail.jail
        """Number of the jail that the runtime has; 0 for none."""
        self._aside = story.aside.jail.jail if story.aside is not None else 0
        """Of the one that waits, or did last."""
        self._numbered = max(self.jail, self._aside)

    def hand(self) -> None:
        """Hands the file over once more."""
        with self._lock:
            if not self._dead:
                self._handed(self._file.descriptor)

    def story(self) -> Story:
        """How the runtime stands."""
        with self._lock:
            return Story.of(entries_of(self._file.read()), self._limit)

    def write(self, entry: JournalEntry) -> None:
        with self._lock:
            self._write(entry)

    def write_of(self, jail: int, entry: JournalEntry) -> None:
        """What a jail's last words were is of no interest once there is a later one, unless it waits."""
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
        """A jail is about to be started; its number."""
        with self._lock:
            self._numbered += 1
            self.jail = self._numbered
            self._write(JournalEntry(began=journal_pb2.Began(jail=self.jail, ends_at=ends_at or 0.0)))
            return self.jail

    def set_aside(self, *, intact: bool) -> None:
        """The jail waits from here on: see the entry."""
        with self._lock:
            self._write(JournalEntry(set_aside=journal_pb2.SetAside(intact=intact)))
            self.jail, self._aside = 0, self.jail

    def taken_back(self) -> None:
        """The one that waits is the runtime's again."""
        with self._lock:
            self._write(JournalEntry(taken_back=journal_pb2.TakenBack()))
            self.jail, self._aside = self._aside, 0

    def filled(self, head: int, steps: int) -> None:
        """It has what the runtime's jails begin with: the state after step `head`, of so many steps."""
        if steps:
            self.write(JournalEntry(counted=journal_pb2.Counted(steps=steps)))
        if head:
            self.write(JournalEntry(moved=journal_pb2.Moved(step=head)))
        self.write(JournalEntry(filled=journal_pb2.Filled()))

    def mourned(self, jail: int) -> None:
        """Nothing more is expected of that jail."""
        self.write_of(jail, JournalEntry(mourned=journal_pb2.Mourned()))

    def settled(self, key: str, outcome: Outcome) -> None:
        self.write(JournalEntry(settled=to_entry(key, outcome)))

    def patch_begun(self, key: str, head: int, steps: int) -> None:
        """A patch is about to be applied."""
        self.write(JournalEntry(patch_begun=make(journal_pb2.PatchBegun, key=key, head=head, steps=steps)))

    def accepted(self, injection: int, superseded: list[int]) -> None:
        """Every later jail begins with this injection too, 0 for none, and no longer with those."""
        self.write(JournalEntry(accepted=journal_pb2.Accepted(injection=injection, superseded=superseded)))

    def tidy(self, *, resting: bool) -> None:
        """Writes a journal that has become long anew. Not between the arrival of a packet and its being taken."""
        with self._lock:
            if self._dead or self._file.size <= self._room(resting=resting):
                return
            try:
                story = Story.of(entries_of(self._file.read()), self._limit)
                fresh = JournalFile.create(story.retold())
            except OSError:
                return  # no memory for a second one: the long one will do
            self._stays = fresh.size
            old, self._file = self._file, fresh
            self._handed(fresh.descriptor)
            old.close()

    def _room(self, *, resting: bool) -> int:
        """Bytes that it may have, so many that not every other call waits for it to be written anew."""
        return self._stays + max(TIDY_SIZE, self._stays) if resting else 2 * max(TIDY_SIZE, 2 * self._stays)
