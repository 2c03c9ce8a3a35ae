"""The state of a runtime and its last jail when the last entry of the journal was written.

Entries in, state out; no I/O. The state can be written as fewer entries, so that a journal need not grow for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, journal_pb2, runtime_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_worker.execution.results import StreamName
from cenote_worker.execution.transcript import CellTranscript
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.running_request import BACKGROUND


@dataclass(slots=True, eq=False)
class ReplayedRequest:
    """A request to a jail. packets: displayed objects and the answer, as they came."""

    asked: journal_pb2.Asked
    printed: CellTranscript
    sent: bool = False
    answered: bool = False
    interrupted: journal_pb2.Interrupted | None = None
    packets: list[journal_pb2.Arrived] = field(default_factory=list)
    room: int = 0

    @property
    def ask(self) -> RequestKind:
        return RequestKind[self.asked.ask]


class JailReplay:
    """Replays the entries about the runtime's last jail. limit: see JournalReplay."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.jail = journal_pb2.Began()
        """Number 0 for none."""
        self.ended: journal_pb2.Ended | None = journal_pb2.Ended()
        """How that jail ended, if it did. Whether that was reported is recorded with the jail."""
        self.request: ReplayedRequest | None = None
        """The request that is running, or was answered and not settled."""
        self.held: OrderedDict[str, ReplayedRequest] = OrderedDict()
        """Earlier requests that were answered and not settled: their effects are being stored. By key."""
        self.untaken = False
        """Whether the last packet may still stand in its socket."""
        self.background = CellTranscript(BACKGROUND)
        self.setback: journal_pb2.Moved | None = None
        """What happened to the jail's worker; cleared by the next request."""
        self.host_calls: dict[int, None] = {}

    def follow(self, entry: JournalEntry) -> None:
        """Applies the next entry. Entries that are not about a jail are ignored."""
        match entry.WhichOneof("body"):
            case "began":
                self._begin(entry.began)
            case "asked":
                self._ask(entry.asked)
            case "arrived":
                self.untaken = True
                self._hear(entry.arrived)
            case "taken":
                self.untaken = False
            case "printed":
                self._print(stream_of(entry.printed), entry.printed.text)
            case "host_called":
                self.host_calls[entry.host_called.id] = None
            case "host_answered":
                self.host_calls.pop(entry.host_answered.id, None)
            case "ended":
                self.ended, self.request = entry.ended, None
            case "mourned":
                self.jail.mourned = True
            case "filled":
                self.jail.filled = True
            case "moved":
                self.jail.head = entry.moved.step
                self.setback = entry.moved if entry.moved.reason else None
            case _:
                self._follow_request(entry)

    def _follow_request(self, entry: JournalEntry) -> None:
        if self.request is None:
            return
        match entry.WhichOneof("body"):
            case "sent":
                self.request.sent = True
            case "unsent":
                self.request = None
            case "interrupted":
                self.request.interrupted = entry.interrupted
            case "skipped":
                self.request.printed.skip(entry.skipped.characters)

    def _begin(self, began: journal_pb2.Began) -> None:
        self.jail = journal_pb2.Began()
        self.jail.CopyFrom(began)
        self.ended, self.request, self.untaken, self.setback = None, None, False, None
        self.background = CellTranscript(BACKGROUND)
        self.host_calls.clear()

    def _ask(self, asked: journal_pb2.Asked) -> None:
        if self.ended is not None:
            return
        undoes = asked.HasField("failed") and self.request is not None  # its client has the output
        printed = self.request.printed if undoes and self.request else CellTranscript(self._limit)
        if not undoes:
            self._hold()
        self.request, self.setback = ReplayedRequest(asked, printed, room=self._limit), None
        self.jail.number = asked.number
        self.jail.kills = max(self.jail.kills, asked.kills)

    def _hold(self) -> None:
        """Another request came before an answer was settled: the answer may not go out before its state is stored."""
        request = self.request
        if request is None or not request.answered:
            return
        if request.asked.atomic:  # it cannot be undone any more
            self.jail.head = request.asked.step
        self.held[request.asked.key] = request

    def _hear(self, arrived: journal_pb2.Arrived) -> None:
        try:
            frame = jail_pb2.WorkerFrame.FromString(arrived.data)
        except DecodeError:
            frame = jail_pb2.WorkerFrame()  # the successor will refuse it, too
        match frame.WhichOneof("body"):
            case "ready":
                self.jail.ready = True
            case "output":
                self._print("stderr" if frame.output.is_stderr else "stdout", frame.output.text)
            case "display":
                self._show(arrived, frame.display)
            case _:
                self._answer(arrived)

    def _print(self, stream: StreamName, text: str) -> None:
        if self.request is None or self.request.answered or not _has_output(self.request):
            self.background.add(stream, text)
        else:
            self.request.printed.add(stream, text)

    def _show(self, arrived: journal_pb2.Arrived, display: jail_pb2.Display) -> None:
        request = self.request
        if request is None:
            return
        if display.clears:
            request.room += sum(packet.ByteSize() for packet in request.packets)
            request.packets.clear()
            request.printed.skip(0)  # positions count on: a client may have read the text
            return
        size = arrived.ByteSize()
        if size <= request.room:
            request.room -= size
            request.packets.append(arrived)

    def _answer(self, arrived: journal_pb2.Arrived) -> None:
        if self.request is None:
            return
        if self.request.ask is RequestKind.EXECUTE and not self.request.asked.atomic:
            self.jail.head = self.request.asked.step
        if self.request.asked.key:
            self.request.answered = True
            self.request.packets.append(arrived)
        else:
            self.request = None  # its client is gone with the process that asked

    def settle(self, settled: journal_pb2.Settled) -> CellTranscript | None:
        """The request of this key has an outcome. Gives what it printed; None where there is no such request."""
        held, request = self.held.pop(settled.key, None), self.request
        if request is None or request.asked.key != settled.key:
            return held.printed if held is not None else None
        if _is_atomic(request) and settled.result.state == runtime_pb2.CellResult.KEPT:
            self.jail.head = settled.result.step
        self.request = None
        return request.printed

    def give_up_held(self) -> Iterator[tuple[str, int]]:
        """The jail of the held requests is gone, and a journal cannot tell whether their effects were stored. Gives
        the key and step of each.
        """
        while self.held:
            key, request = self.held.popitem(last=False)
            yield key, request.asked.step

    def give_up(self) -> Iterator[tuple[str, int]]:
        """The same for a jail that is left to end, including its running request."""
        yield from self.give_up_held()
        if self.request is not None and self.request.asked.key:
            yield self.request.asked.key, self.request.asked.step

    def retold(self) -> Iterator[JournalEntry]:
        """The fewest entries that give this state. Not allowed while a packet is `untaken`."""
        if not self.jail.jail:
            return
        yield JournalEntry(began=self.jail)
        for call in self.host_calls:
            yield JournalEntry(host_called=journal_pb2.HostCalled(id=call))
        for piece in pieces_of(self.background):
            yield JournalEntry(printed=piece)
        yield from self._retold_held()
        if self.request is not None:
            yield from _retold_request(self.request)
        if self.setback is not None:
            yield JournalEntry(moved=self.setback)
        if self.ended is not None:
            yield JournalEntry(ended=self.ended)

    def _retold_held(self) -> Iterator[JournalEntry]:
        if not self.held:
            return
        for request in self.held.values():
            yield from _retold_request(request)
        # A later request follows: it shows that these are not running, and which number was the last.
        yield JournalEntry(
            asked=make(journal_pb2.Asked, number=self.jail.number, ask=RequestKind.MAKE_CHECKPOINT.name)
        )
        yield JournalEntry(unsent=journal_pb2.Unsent())
        yield JournalEntry(moved=journal_pb2.Moved(step=self.jail.head))


def _is_atomic(request: ReplayedRequest) -> bool:
    """Whether it is a cell, or the undoing of one, that moves the head only if its state is stored."""
    return request.asked.atomic or request.asked.HasField("failed")


def _has_output(request: ReplayedRequest) -> bool:
    """Whether it is a cell, or the undoing of one: output during any other request is reported with the next cell."""
    return request.ask is RequestKind.EXECUTE or request.asked.HasField("failed")


def _retold_request(request: ReplayedRequest) -> Iterator[JournalEntry]:
    yield JournalEntry(asked=request.asked)
    if request.sent:
        yield JournalEntry(sent=journal_pb2.Sent())
    if request.interrupted is not None:
        yield JournalEntry(interrupted=request.interrupted)
    missing, _ = request.printed.after(0)
    if missing:
        yield JournalEntry(skipped=journal_pb2.Skipped(characters=missing))
    for piece in pieces_of(request.printed):
        yield JournalEntry(printed=piece)
    for packet in request.packets:
        yield JournalEntry(arrived=packet)
        yield JournalEntry(taken=journal_pb2.Taken())


def pieces_of(transcript: CellTranscript) -> Iterator[journal_pb2.Printed]:
    for stream, text in transcript.after(0)[1]:
        yield make(journal_pb2.Printed, is_stderr=stream == "stderr", text=text)


def stream_of(printed: journal_pb2.Printed) -> StreamName:
    return "stderr" if printed.is_stderr else "stdout"


MAX_OUTCOMES: Final = 256
"""Outcomes kept for clients that reconnect: they repeat requests that were running at the disconnect, none older."""

MAX_KEYS: Final = 10_000
"""Older keys kept without outcomes, so that a late repetition is refused and not carried out a second time."""


@dataclass(frozen=True, slots=True)
class KeyedOutcome:
    """The outcome of a request with a key. printed: its output, as far as it is kept."""

    settled: journal_pb2.Settled
    printed: CellTranscript

    @property
    def size(self) -> int:
        return self.settled.ByteSize() + self.printed.size


class JournalReplay:
    """Replays a journal. limit: characters of one request's output that are kept, and bytes of what it displayed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.current = JailReplay(limit)
        """State of the last jail that was started."""
        self.aside: JailReplay | None = None
        """State of the jail before it, which is set aside until the patch that is being applied is settled: a
        successor continues with that jail.
        """
        self.steps = 0
        self.outcomes: OrderedDict[str, KeyedOutcome] = OrderedDict()
        self.forgotten: OrderedDict[str, int] = OrderedDict()
        """Step by key, 0 for a request that was no step."""
        self.injections: list[int] = []
        self.patch: journal_pb2.PatchBegun | None = None
        """The patch that is being applied."""
        self._size = 0

    @classmethod
    def of(cls, entries: Iterable[JournalEntry], limit: int) -> JournalReplay:
        story = cls(limit)
        for entry in entries:
            story.follow(entry)
        return story

    def follow(self, entry: JournalEntry) -> None:
        """Applies the next entry."""
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

    def _follow_jail(self, jail: JailReplay | None, entry: JournalEntry) -> None:
        if jail is None:  # it is not set aside any more, and ends
            return
        if entry.HasField("began") or entry.HasField("ended"):
            self._forget(jail.give_up_held())
        if entry.HasField("asked") and jail.ended is None:
            self.steps = max(self.steps, entry.asked.step)
        jail.follow(entry)

    def _set_aside(self, *, intact: bool) -> None:
        self.aside, self.current = self.current, JailReplay(self._limit)
        if self.patch is not None:
            self.patch.intact = intact

    def _take_back(self) -> None:
        if self.aside is not None:
            self._forget(self.current.give_up())
            self.current, self.aside = self.aside, None

    def _settle(self, settled: journal_pb2.Settled) -> None:
        printed = CellTranscript(self._limit)
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
            self._keep(KeyedOutcome(settled, printed))

    def _keep(self, outcome: KeyedOutcome) -> None:
        former = self.outcomes.pop(outcome.settled.key, None)
        self._size -= former.size if former is not None else 0
        self.outcomes[outcome.settled.key] = outcome
        self._size += outcome.size
        while len(self.outcomes) > 1 and (len(self.outcomes) > MAX_OUTCOMES or self._size > 4 * self._limit):
            key, gone = self.outcomes.popitem(last=False)
            self._size -= gone.size
            self._forget([(key, gone.settled.result.step)])

    def _forget(self, steps: Iterable[tuple[str, int]]) -> None:
        """Remembers of these keys only that they had an outcome."""
        self.forgotten.update(steps)
        while len(self.forgotten) > MAX_KEYS:
            self.forgotten.popitem(last=False)

    # -- rewriting --

    def retold(self) -> Iterator[JournalEntry]:
        """The fewest entries that give this state. Not allowed while a packet is `untaken`."""
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


def _with_output(outcome: KeyedOutcome) -> journal_pb2.Settled:
    settled = _without_output(outcome.settled)
    settled.missing = outcome.printed.after(0)[0]
    settled.printed.extend(pieces_of(outcome.printed))
    return settled
