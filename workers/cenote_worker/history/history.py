"""The history of one runtime in memory: each event is added as it happens, and queries are answered from it.

A long history has tens of thousands of containers, none of them garbage. While one is read or queried, Python's
collector of cyclic garbage is off.
"""

from __future__ import annotations

import gc
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from cenote_security.errors import MalformedValueError
from cenote_security.garbage_collection import collector_off
from cenote_worker.execution.results import VariableInfo
from cenote_worker.execution.trace import content_version
from cenote_worker.history.bounds import (
    MAX_ALL_PUT_IN,
    MAX_BEGINNINGS,
    MAX_FILE,
    MAX_FILES,
    MAX_TOLD,
    MAX_TRACES,
    beginning,
    bounded,
    check_beginnings,
    check_room,
    told,
    with_room,
)
from cenote_worker.history.events import (
    ArtifactDeclared,
    EnvironmentUsed,
    Event,
    FileStored,
    HeadMoved,
    InitialNames,
    SuiteOutcome,
    ValueDropped,
    ValuesInjected,
    ValueStored,
    VariablesDescribed,
)
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import Dependencies, StepTree

_MANY: Final = 1_000
"""Steps. With fewer, the collector's work is not noticeable."""

_MUCH: Final = 50_000
"""Containers, of one or two thousand steps."""


@contextmanager
def no_collections(steps: int) -> Iterator[None]:
    """Tens of thousands of new containers, none of them garbage, would have the collector go through the whole
    history several times: that takes longer than all the rest.
    """
    with collector_off(stays=steps >= _MANY):
        yield


@contextmanager
def one_collection() -> Iterator[None]:
    """The same for reading a history, all of which stays. After a large one the collector runs once, at the end:
    otherwise it would run soon, in the middle of a query.
    """
    with collector_off(stays=False):
        yield
    if gc.isenabled() and gc.get_count()[0] > _MUCH:
        gc.collect()


MAX_RESULTS: Final = 64 * 2**20
"""Bytes of all steps' results; beyond it those of the oldest steps are shed."""

MAX_DESCRIBED: Final = 500
"""Variables of one description that are recorded: more than people and models look at."""

MAX_SAID: Final = 300
"""Characters recorded of one variable. Jails choose these texts, and are asked after each step."""

MAX_NOTED: Final = 64 * 2**20
"""Characters of all recorded descriptions of variables. Beyond that this history records no more."""

MAX_DESCRIPTIONS: Final = 10
"""Descriptions of one step's state that are recorded: a client that asks all the time gets little that is new."""

_Beside = TypeVar("_Beside")
_Companion = TypeVar("_Companion", bound="HistoryObserver")


class HistoryObserver(Protocol):
    """Computes in advance what queries of a history will need."""

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """The history has further steps, on any line; or none, but units were declared.

        Called in any order, and from several threads.
        """


class EventSink(Protocol):
    """A place where events outlive this process. `add` never blocks or raises."""

    def add(self, position: int, event: Event) -> None: ...

    def shed(self, position: int, record: StepRecord) -> None:
        """Replaces the record of a step with this smaller one."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class History:
    """Safe to use from several threads. What has been read of it stays true: it is only added to.

    Queries take no lock: they read what is never changed, and additions never wait for a query.
    """

    def __init__(self, keep: EventSink | None = None, id: str = "", *, room: int = MAX_RESULTS) -> None:
        """id: unique to this history. room: bytes of results."""
        self.id = id or uuid.uuid4().hex
        self.tree = StepTree()
        self.dependencies = Dependencies(self.tree, threading.Lock())
        self.begun: tuple[str, ...] = ()
        """Names that each jail begins with."""
        self.begun_files: Mapping[str, str] = {}
        """See InitialNames."""
        self.begun_values: tuple[ValuesInjected, ...] = ()
        """See InitialNames."""
        self.files: dict[str, bytes | None] = {}
        """Contents that clients have written into files, by digest; see FileStored."""
        self.values: dict[str, bytes | None] = {}
        """Values that clients have injected, by digest; see ValueStored."""
        self.injections: list[int] = []
        """Numbers of the injection steps."""
        self._put_in: dict[str, list[int]] = {}
        """The same by content, where the values may still be available."""
        self.units: Mapping[str, ArtifactDeclared] = {}
        """The tracked units by name, the latest declared last. Replaced and never changed, as `suites`."""
        self.environments: tuple[EnvironmentUsed, ...] = ()
        """In order; none where jails always had the packages of their process. Replaced and never changed."""
        self.suites: Mapping[str, SuiteOutcome] = {}
        """The latest outcomes of each suite's tests."""
        self._keep = keep
        self._room = room
        self._room_for_traces = MAX_TRACES
        self._room_for_notes = MAX_NOTED
        self._room_for_words = MAX_TOLD
        self._room_for_files = MAX_FILES
        self._room_for_values = MAX_ALL_PUT_IN
        self._room_for_beginnings = MAX_BEGINNINGS
        self._begun_at = -1
        """Position of the event about the state before the first step; -1 for none."""
        self._elsewhere: set[str] = set()
        """Contents of injections whose values are not in `values`."""
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._beside: dict[type, object] = {}
        self._companions: tuple[HistoryObserver, ...] = ()
        self._untold: list[StepRecord] = []
        """Steps that the companions have not processed yet: see `prepare`."""
        self._described: dict[int, list[VariablesDescribed]] = {}
        self._infos: dict[str, VariableInfo] = {}
        """The latest description of each variable, on the line to `_infos_of`."""
        self._infos_of = 0
        self._shedding: deque[tuple[int, int]] = deque()
        """Steps with results, oldest first: their positions and sizes."""

    # -- adding --

    def check_room(self, code: str) -> None:
        """Checks that a cell of this code can be recorded. Raises RejectedError."""
        check_room(len(code), self._room_for_words)

    def check_beginning(self, names: Iterable[str]) -> None:
        """Checks that these names can be changed before the first step. Raises RejectedError."""
        if self._keep is not None:
            held = beginning(InitialNames(names=self.begun, files=self.begun_files, values=self.begun_values))
            check_beginnings(held + 2 * sum(map(len, names)), self._room_for_beginnings)

    def ended(self, record: StepRecord, **came_to: Any) -> StepRecord:
        """A step has ended; it began at the head. Gives the record that is kept.

        came_to: fields of the record that are known only now; setting them here saves each cell a copy of 5 µs.
        """
        with self._lock:
            whole = replace(record, parent=self.tree.head, **came_to)
            kept = with_room(bounded(whole), self._room_for_traces)
            self._append(kept)
        return kept

    def moved(self, head: int, reason: str) -> None:
        """The live state is now that after another step. Raises KeyError for an unknown step."""
        with self._lock:
            if head != self.tree.head:
                self.tree.depth(head)
                self._append(HeadMoved(head=head, reason=reason))

    def begins_with(
        self,
        names: Iterable[str],
        files: Mapping[str, str] | None = None,
        values: Iterable[ValuesInjected] | None = None,
    ) -> None:
        """Sets what the state before the first step contains. files, values: see InitialNames; None: unchanged."""
        with self._lock:
            begun = InitialNames(
                names=tuple(names),
                files=self.begun_files if files is None else dict(files),
                values=self.begun_values if values is None else tuple(values),
            )
            if (begun.names, begun.files, begun.values) != (self.begun, self.begun_files, self.begun_values):
                self._append(begun)

    def keep_file(self, data: bytes | None) -> str:
        """Keeps what a client wrote into a file, unless it is None or too large. Gives its digest, or ""."""
        if data is None or len(data) > MAX_FILE:
            return ""
        digest = content_version(data)
        with self._lock:
            if digest not in self.files:
                if len(data) > self._room_for_files:
                    return ""
                self._append(FileStored(digest=digest, data=data))
        return digest

    def keep_value(self, digest: str, data: bytes) -> None:
        """Keeps the values of an injection, if there is room for them."""
        with self._lock:
            if digest not in self.values and len(data) <= self._room_for_values:
                self._append(ValueStored(digest=digest, data=data))

    def has_room_for_value(self, size: int) -> bool:
        """Whether `keep_value` would keep so many bytes."""
        return size <= self._room_for_values

    def value_gone(self, content: str) -> None:
        """The values with this content are gone: they are kept neither here nor elsewhere."""
        with self._lock:
            if content in self._elsewhere:
                self._append(ValueDropped(content=content))

    @property
    def is_kept(self) -> bool:
        """Whether the history outlives this process."""
        return self._keep is not None

    @property
    def values_elsewhere(self) -> frozenset[str]:
        """Contents of injections that are not kept here, and were not reported gone."""
        return frozenset(self._elsewhere)

    def described(self, variables: Sequence[VariableInfo]) -> None:
        """Records the live namespace's description of its variables."""
        with self._lock:
            if self._room_for_notes < 0:
                return
            if not self._continues():
                self._infos = {}
            noted = [info for info in variables if len(info.name) + len(info.type) <= MAX_SAID]
            said = {info.name: _shortened(info) for info in noted[:MAX_DESCRIBED]}
            news = tuple(info for info in said.values() if self._infos.get(info.name) != info)
            gone = tuple(name for name in self._infos if name not in said)
            described = self.said(self.tree.head)
            if described and (len(described) >= MAX_DESCRIPTIONS or not (news or gone)):
                return
            # Once even without changes: it says that the earlier descriptions hold for this step, too.
            self._append(VariablesDescribed(step=self.tree.head, variables=news, gone=gone))

    def _continues(self) -> bool:
        """Whether the line of the last description leads to the head."""
        return self.tree.ancestor(self._infos_of, self.tree.head) == self._infos_of

    def declared(self, units: Iterable[ArtifactDeclared]) -> None:
        """These units are tracked from now on, or no longer. Raises RejectedError when there is no room for them."""
        units = tuple(units)
        self.prepare()
        with self._lock:
            check_room(sum(map(told, units)), self._room_for_words)
            for unit in units:
                self._append(replace(unit, step=self.tree.head))
            self._tell(())

    def runs_in(self, environment: EnvironmentUsed) -> None:
        """Jails have these packages from now on. Recorded where they are other ones than before."""
        with self._lock:
            before = self.environments[-1].digest if self.environments else ""
            if before != environment.digest:
                self._append(replace(environment, after=self.tree.last))

    def tested(self, found: SuiteOutcome) -> None:
        """Tests of a suite were run, or their outcomes found still valid. Raises RejectedError, as `declared`."""
        with self._lock:
            check_room(told(found), self._room_for_words)
            self._append(found)

    def read(self, events: Iterable[Event]) -> None:
        """Adds stored events, in order. Raises MalformedValueError for events that do not fit."""
        read: list[StepRecord] = []
        self.prepare()
        with self._lock, one_collection():
            for event in events:
                try:
                    self._take(event)
                except (KeyError, ValueError) as error:
                    raise MalformedValueError(
                        f"the events of a history contradict each other: {error}"
                    ) from None
                if isinstance(event, StepRecord):
                    read.append(event)
            if read:
                self._tell(read)

    def begin_as(self, other: History) -> None:
        """Begins with the events of another runtime's history up to now, before any own event."""
        with self._lock:
            for position in range(other.size):
                self._append(other.event(position))

    def _append(self, event: Event) -> None:
        position = len(self._events)
        self._take(event)
        if self._keep is not None:
            self._keep.add(position, event)
        if isinstance(event, StepRecord) and self._companions:
            self._untold.append(event)

    def prepare(self) -> None:
        """Computes what queries will need of the steps added since the last call.

        Not for the thread that adds a step: its caller waits for the result, and for the interpreter's lock.
        Without such a call the next query does this work.
        """
        self.dependencies.catch_up()
        if self._untold:
            with self._lock:
                untold, self._untold = self._untold, []
            self._tell(untold)

    def _tell(self, records: Sequence[StepRecord]) -> None:
        for each in self._companions:
            each.went_on(self, records)

    def _take(self, event: Event) -> None:
        if isinstance(event, StepRecord):
            self.tree.add(event)
            self.dependencies.add(event)
            if event.kind == "injection":
                self.injections.append(event.number)
                self._put_in.setdefault(event.content, []).append(event.number)
                self._named(event.content)
        elif isinstance(event, HeadMoved):
            self.tree.move(event.head)
        elif isinstance(event, InitialNames):
            self.begun, self.begun_files, self.begun_values = event.names, event.files, event.values
            self._room_for_beginnings -= beginning(event)
            if self._begun_at >= 0:  # the new event replaces it, or it is outdated
                self._events[self._begun_at] = InitialNames()
            self._begun_at = len(self._events)
            for each in event.values:
                self._named(each.content)
        elif isinstance(event, FileStored):
            self.files[event.digest] = event.data
            self._room_for_files -= len(event.data or b"")
        elif isinstance(event, ValueStored):
            self.values[event.digest] = event.data
            self._elsewhere.discard(event.digest)
            self._room_for_values -= len(event.data or b"")
        elif isinstance(event, ValueDropped):
            self._lose(event.content)
        elif isinstance(event, ArtifactDeclared):
            self._declare(event)
        elif isinstance(event, SuiteOutcome):
            self.suites = {**self.suites, event.suite: event}
        elif isinstance(event, EnvironmentUsed):
            self.environments = (*self.environments, event)
        else:
            self._described.setdefault(event.step, []).append(event)
            self._infos |= {info.name: info for info in event.variables}
            for name in event.gone:
                self._infos.pop(name, None)
            self._infos_of = event.step
            self._room_for_notes -= sum(map(_noted, event.variables)) + sum(map(len, event.gone))
        self._events.append(event)
        self._room_for_words -= told(event)
        if isinstance(event, StepRecord):
            self._room_for_traces -= event.trace.size if event.trace is not None else 0
            self._shed(event)

    def _named(self, content: str) -> None:
        if content and content not in self.values:
            self._elsewhere.add(content)

    def _lose(self, content: str) -> None:
        self._elsewhere.discard(content)
        for number in self._put_in.pop(content, ()):  # one of possibly very many
            self.tree.replace(replace(self.tree.get(number), content=""))

    def _declare(self, unit: ArtifactDeclared) -> None:
        others = {name: each for name, each in self.units.items() if name != unit.name}
        self.units = others if unit.dropped else {**others, unit.name: unit}

    def _shed(self, record: StepRecord) -> None:
        """Makes room for the results of a new step."""
        if record.shed or not (size := record.size):
            return
        self._shedding.append((len(self._events) - 1, size))
        self._room -= size
        while self._room < 0 and len(self._shedding) > 1:
            position, size = self._shedding.popleft()
            self._room += size
            self._shed_at(position)

    def _shed_at(self, position: int) -> None:
        record = self._events[position]
        assert isinstance(record, StepRecord)
        self._events[position] = shed = record.without_results()
        self.tree.replace(shed)
        if self._keep is not None:
            self._keep.shed(position, shed)

    # -- the sink --

    def flush(self) -> None:
        """Waits until the sink, if any, has stored everything so far. Raises the error that prevents it."""
        if self._keep is not None:
            self._keep.flush()

    def close(self) -> None:
        """Stores nothing more. What is stored is complete. Closing twice is fine."""
        if self._keep is not None:
            self._keep.close()

    # -- reading --

    def beside(self, kind: type[_Beside]) -> _Beside:
        """The one object of this class that belongs to this history: derived data worth keeping."""
        self.prepare()
        found = self._beside.setdefault(kind, kind())  # `setdefault` is atomic: no lock is needed
        assert isinstance(found, kind)
        return found

    def accompany(self, *kinds: type[_Companion]) -> None:
        """Attaches objects of these classes: each receives all steps, the existing ones at once."""
        companions = [self.beside(kind) for kind in kinds]
        if all(each in self._companions for each in companions):
            return
        with self._lock:
            further = [each for each in companions if each not in self._companions]
            self._companions += tuple(further)
            records = list(self.tree)
        with no_collections(len(records)):
            for each in further if records else ():
                each.went_on(self, records)

    @property
    def size(self) -> int:
        """Events so far."""
        return len(self._events)

    def event(self, position: int) -> Event:
        """The event at a position, from 0. Raises IndexError."""
        return self._events[position]

    def said(self, step: int) -> Sequence[VariablesDescribed]:
        """Descriptions of the namespace's variables after a step, in the order in which they were taken."""
        return self._described.get(step, ())


def _shortened(info: VariableInfo) -> VariableInfo:
    return (
        info if len(info.description) <= MAX_SAID else replace(info, description=info.description[:MAX_SAID])
    )


def _noted(info: VariableInfo) -> int:
    return len(info.name) + len(info.type) + len(info.description)
