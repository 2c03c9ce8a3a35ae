"""What a journal tells: how its runtime stood when the last entry was written. Entries in, state out; no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import journal_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_worker.journal.jail_story import JailStory, pieces_of, stream_of
from cenote_worker.transcript import Transcript

MAX_OUTCOMES: Final = 256
"""Outcomes kept for clients that come back: they repeat what was under way when their line broke, nothing older."""

MAX_KEYS: Final = 10_000
"""Keys kept behind those, so that a late repetition is refused and not carried out a second time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a request with a key. printed: its output, as far as it is kept."""

    settled: journal_pb2.Settled
    printed: Transcript

    @property
    def size(self) -> int:
        return self.settled.ByteSize() + self.printed.size


class Story:
    """Follows a journal. limit: characters of one request's output that are kept, and bytes of what it displayed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.current = JailStory(limit)
        """Of the last jail that was started."""
        self.aside: JailStory | None = None
        """Of the one before it, which waits until the patch that is being applied is settled: a successor goes on
        with that one.
        """
        self.steps = 0
        self.outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self.forgotten: OrderedDict[str, int] = OrderedDict()
        """Step by key, 0 for what was none."""
        self.injections: list[int] = []
        self.patch: journal_pb2.PatchBegun | None = None
        """That is being applied."""
        self._size = 0

    @classmethod
    def of(cls, entries: Iterable[JournalEntry], limit: int) -> Story:
        story = cls(limit)
        for entry in entries:
            story.follow(entry)
        return story

    def follow(self, entry: JournalEntry) -> None:
        """Takes in the next entry."""
        match entry.WhichOneof("body"):
            case "settled":
                self._settle(entry.settled)
            case "forgotten":
                self._forget(zip(entry.forgotten.keys, entry.forgotten.steps, strict=False))
            case "accepted":
                self.injections = [n for n in self.injections if n not in entry.accepted.superseded]
                if entry.accepted.injection:
                    self.injections.append(entry.accepted.injection)
            case "counted":
                self.steps = entry.counted.steps
            case "patch_begun":
                self.patch = entry.patch_begun
            case "set_aside":
                self._set_aside(intact=entry.set_aside.intact)
            case "taken_back":
                self._take_back()
            case _:
                self._follow_jail(self.aside if entry.aside else self.current, entry)

    def _follow_jail(self, jail: JailStory | None, entry: JournalEntry) -> None:
        if jail is None:  # it waits no more, and ends
            return
        if entry.HasField("began") or entry.HasField("ended"):
            self._forget(jail.give_up_held())
        if entry.HasField("asked") and jail.ended is None:
            self.steps = max(self.steps, entry.asked.step)
        jail.follow(entry)

    def _set_aside(self, *, intact: bool) -> None:
        self.aside, self.current = self.current, JailStory(self._limit)
        if self.patch is not None:
            self.patch.intact = intact

    def _take_back(self) -> None:
        if self.aside is not None:
            self._forget(self.current.give_up())
            self.current, self.aside = self.aside, None

    def _settle(self, settled: journal_pb2.Settled) -> None:
        printed = Transcript(self._limit)
        for jail in (self.aside, self.current):
            printed = (jail.settle(settled) if jail is not None else None) or printed
        if self.patch is not None and self.patch.key == settled.key:
            self.patch = self.aside = None
        if settled.missing or settled.printed:
            printed.skip(settled.missing)
            for piece in settled.printed:
                printed.add(stream_of(piece), piece.text)
            settled = _without_output(settled)
        self.steps = max(self.steps, settled.result.step)
        if settled.WhichOneof("outcome") not in (None, "nothing_ran"):
            self._keep(Outcome(settled, printed))

    def _keep(self, outcome: Outcome) -> None:
        former = self.outcomes.pop(outcome.settled.key, None)
        self._size -= former.size if former is not None else 0
        self.outcomes[outcome.settled.key] = outcome
        self._size += outcome.size
        while len(self.outcomes) > 1 and (len(self.outcomes) > MAX_OUTCOMES or self._size > 4 * self._limit):
            key, gone = self.outcomes.popitem(last=False)
            self._size -= gone.size
            self._forget([(key, gone.settled.result.step)])

    def _forget(self, steps: Iterable[tuple[str, int]]) -> None:
        """What is known of these keys is that they had an outcome."""
        self.forgotten.update(steps)
        while len(self.forgotten) > MAX_KEYS:
            self.forgotten.popitem(last=False)

    # -- the same, written anew --

    def retold(self) -> Iterator[JournalEntry]:
        """The fewest entries that tell it. Not while a packet is `untaken`."""
        yield JournalEntry(counted=journal_pb2.Counted(steps=self.steps))
        for injection in self.injections:
            yield JournalEntry(accepted=journal_pb2.Accepted(injection=injection))
        if self.forgotten:
            keys, steps = self.forgotten.keys(), self.forgotten.values()
            yield JournalEntry(forgotten=make(journal_pb2.Forgotten, keys=keys, steps=steps))
        for outcome in self.outcomes.values():
            yield JournalEntry(settled=_with_output(outcome))
        if self.patch is not None:
            yield JournalEntry(patch_begun=self.patch)
        if self.aside is not None:
            yield from self.aside.retold()
            intact = self.patch is not None and self.patch.intact
            yield JournalEntry(set_aside=journal_pb2.SetAside(intact=intact))
        yield from self.current.retold()


def _without_output(told: journal_pb2.Settled) -> journal_pb2.Settled:
    settled = journal_pb2.Settled()
    settled.CopyFrom(told)
    settled.missing = 0
    del settled.printed[:]
    return settled


def _with_output(outcome: Outcome) -> journal_pb2.Settled:
    settled = _without_output(outcome.settled)
    settled.missing = outcome.printed.after(0)[0]
    settled.printed.extend(pieces_of(outcome.printed))
    return settled
