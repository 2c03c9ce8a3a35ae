"""What a changed history needs of a runtime: steps that replace others, and a head that moves by itself.

Where the start of the history is not stored any more, the steps are run in a fresh jail, while the present jail waits
and lends values that need not be computed again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from cenote_worker.execution.results import SnapshotInfo, StreamName
from cenote_worker.execution.trace import Location
from cenote_worker.history.history import History
from cenote_worker.history.step import START, StepRecord
from cenote_worker.process.metrics import REUSED
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.jail_requests import (
    ClientChange,
    WorkdirRequest,
    arranging,
    asking_versions,
    borrowing,
    carrying,
    forgetting,
    lending,
    loading,
)
from cenote_worker.runtime.recorder import Admission, RecordingListener, admit_all
from cenote_worker.runtime.replay import HostCallReplay, UnrecordedCall, made_calls, write_all, written_by
from cenote_worker.runtime.snapshots import keeping
from cenote_worker.runtime.state.state_source import NO_STATE_SOURCE, StateSource
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.requests import OWNER, AuthorSession, JailRequest, Listener, Outcome, Withdraw
from cenote_worker.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from cenote_worker.runtime.handover.handover_log import HandoverLog
    from cenote_worker.runtime.runtime import HostedRuntime


_GIVEN_UP = JailExit(reason="reset", text="it was given up for another that has the same history")


class _Unheard:
    """Ignores the lender's outcome: the borrower sees the end of the connection."""

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, _outcome: Outcome) -> None: ...


class SecondJail:
    """A second jail of one runtime, during one piece of work."""

    def __init__(self, runtime: HostedRuntime, legacy: HandoverLog) -> None:
        self._runtime = runtime
        self._legacy = legacy
        self._first: Supervisor | None = None
        self._refill: StateSource = NO_STATE_SOURCE
        """The first jail's state source."""
        self.step = START
        """The step whose end state the second one began with."""

    @property
    def runs(self) -> bool:
        """Whether the first one waits."""
        return self._first is not None

    @property
    def obstacle(self) -> str:
        """Why a fresh jail does not begin as the history does; empty if it does."""
        return self._runtime.begins_otherwise

    @property
    def refill(self) -> StateSource:
        """The runtime's state source, set aside or not."""
        return self._refill if self.runs else self._runtime.refill

    def begin(self, *, intact: bool) -> None:
        """Begins again at the start of the history. intact: the present jail is still unchanged."""
        self._wait_beside(intact=intact)
        self.step = START
        self._runtime.begin_again()
        write_all(self._runtime, written_by(self._runtime.history))

    def begin_at(self, step: int, *, intact: bool) -> None:
        """Begins again at a step whose end state is stored. intact: as above.

        Raises NotKeptError, CheckpointError and UnavailableError, with the first jail as it was.
        """
        beginning = self.refill.beginning(step)
        self._wait_beside(intact=intact)
        self.step = step
        try:
            with self._runtime.turn:
                self._runtime.refill = beginning
                try:
                    self._runtime.start()
                finally:
                    self._runtime.refill = NO_STATE_SOURCE
        except BaseException:
            self.give_up()
            raise

    def _wait_beside(self, *, intact: bool) -> None:
        """States of the second jail are not stored while it is not known whether it stays: until then a process that
        restores the runtime finds the state before.
        """
        runtime = self._runtime
        with runtime.turn:
            if self._first is None:
                self._legacy.set_aside(intact=intact)
                self._first, self._refill, runtime.refill = (
                    runtime.exchange(None),
                    runtime.refill,
                    NO_STATE_SOURCE,
                )
                return
            former = runtime.exchange(None)
        self._end(former)

    @property
    def lends(self) -> bool:
        """Whether parts of the first one's state can be brought over: not out of a kernel of its own."""
        first = self._first or self._runtime.jail.supervisor
        return first is not None and first.isolation != "gvisor"

    def versions(self, locations: Sequence[Location], listener: Listener) -> None:
        """Queues a request for versions in the first one. The listener gets a VersionsReply, or a RefusedReply."""
        self._lender.submit(asking_versions(locations, listener, OWNER))

    def borrow(self, step: int, locations: Sequence[Location], listener: Listener) -> JailRequest:
        """The request by which the second one brings these over from the first one, whose state is that of the step.

        The first one has begun to lend when this returns. Pickling its values there may change its state, since no
        copy of the state can be made.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lender.submit(lending(theirs, _Unheard()))
        return borrowing(ours, step, locations, listener, OWNER)

    @property
    def _lender(self) -> Supervisor:
        assert self._first is not None, "only asked while it waits"
        return self._first

    def give_up(self) -> None:
        """Continues with the first one, as it was left. If it has ended meanwhile, the owner is informed."""
        if self._first is not None:
            with self._runtime.turn:
                self._legacy.taken_back()
                first = self._taken_back()
                second = self._runtime.exchange(first)
                if first is not None and first.death is not None:
                    self._runtime.jail.bereave(first.death)
            self._end(second)

    def stay(self) -> bool:
        """Ends the first one, as soon as no successor would continue with it. Returns whether there is a second one,
        whose state is not stored yet.
        """
        if self._first is None:
            return False
        with self._runtime.turn:
            first = self._taken_back()
            if self.step != START:
                self._runtime.refill.goes_on_from(self.step)
        self._legacy.stays(partial(self._end, first))
        return True

    def store(self) -> None:
        """Stores the remaining jail's state, if the runtime's states are stored. Blocks. Raises CheckpointError."""
        self._runtime.refill.began_anew()

    def close(self) -> None:
        """The runtime is closed, by a caller that has its turn: the first one ends too, if it waits."""
        first, self._first = self._first, None
        if first is not None:
            first.end(JailExit(reason="closed"))

    def _end(self, supervisor: Supervisor | None) -> None:
        """Ends one of two jails."""
        if supervisor is not None and supervisor.death is None:
            if supervisor.hosts.has_line:
                self._runtime.replays.spare()
            supervisor.end(_GIVEN_UP)

    def _taken_back(self) -> Supervisor | None:
        """Returns the first one, and restores its state source."""
        self._runtime.refill, self._refill = self._refill, NO_STATE_SOURCE
        first, self._first = self._first, None
        return first


LABEL: Final = "patch"
"""Of the state that a failed patch goes back to, and of the one that a patch has made: stored longer than others."""

RERUN_SECONDS: Final = 600.0
RERUN_TIMES: Final = 10
"""A repeated step may take RERUN_SECONDS, or RERUN_TIMES its former duration if that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """A cell to run as a new step. record: the step that it stands for, None for a new one. cause: for its record.

    tentative: the state may be wrong for it. Then it changes nothing outside, and its end state belongs to no step.
    timeout: seconds, where neither the record nor the policy has a limit; see `limit`.
    """

    code: str
    record: StepRecord | None
    cause: str
    tentative: bool
    timeout: float | None = None

    @property
    def limit(self) -> float:
        """Seconds that it may take at most. In its present state, it may wait for something that never comes."""
        took = self.record.duration if self.record is not None else 0.0
        return self.timeout or max(RERUN_SECONDS, RERUN_TIMES * took)


@dataclass(frozen=True, slots=True)
class StateCheck:
    """Whether a copy of the live state is that of a step. works: that had begun before it. quiet: all had ended."""

    reruns: Reruns
    works: int
    quiet: bool

    def holds(self, step: int) -> bool:
        """Call this after the copy, which the jail has reported to be made at the end of this step."""
        return step != START and self.quiet and self.reruns.is_whole(step, self.works)


class Reruns:
    """Of one runtime. Used by one caller at a time."""

    def __init__(self, runtime: HostedRuntime, legacy: HandoverLog) -> None:
        self._runtime = runtime
        self._between: set[int] = set()
        """Numbers of snapshots whose states belong to no step: made on the way to another state."""
        self._works = 0
        """Pieces of work that have begun: see `hold`."""
        self._under_way = 0
        self._worker = 0
        """The thread whose piece of work is under way, if one is."""
        self._seats: dict[str, AuthorSession] = {"": OWNER}
        self._admission: Admission = admit_all
        self.second_jail = SecondJail(runtime, legacy)

    @property
    def history(self) -> History:
        return self._runtime.history

    @property
    def began_elsewhere(self) -> bool:
        """See HostedRuntime."""
        return self._runtime.began_elsewhere

    @property
    def recorded_stubs(self) -> frozenset[str]:
        """See InjectionLog."""
        return self._runtime.noted.recorded_stubs()

    def is_between(self, number: int) -> bool:
        """Whether the state of this number belongs to no step."""
        return number in self._between

    def snapshots(self, answer: Callable[[tuple[SnapshotInfo, ...] | None], None]) -> None:
        """As HostedRuntime.snapshots."""
        self._runtime.snapshots(answer)

    def hold(self, steps: Iterable[int]) -> Callable[[], None]:
        """Pins the snapshots of these states, unless memory is short, until the returned function is called: at the
        end of a piece of work, in which states may belong to no step.

        The end of this process releases them as well.
        """
        let_go = self._runtime.started().hold(steps)
        self._works += 1
        self._under_way += 1
        self._worker = threading.get_ident()

        def over() -> None:
            self._under_way -= 1
            self._worker = self._worker if self._under_way else 0
            let_go()

        return over

    @property
    def under_way(self) -> bool:
        return self._under_way > 0

    @property
    def by_work(self) -> bool:
        """Whether this thread's requests are part of a piece of work. Their states are not stored one by one: a
        process that restores the runtime before the end of the work finds the state before it.
        """
        return self._worker == threading.get_ident()

    def store(self) -> None:
        """Stores the result of a piece of work, if every change is stored. Blocks. Raises CheckpointError."""
        self._runtime.refill.worked()

    def telling(self) -> StateCheck:
        """Call this before the live state is copied."""
        return StateCheck(self, self._works, quiet=self._is_quiet)

    @property
    def _is_quiet(self) -> bool:
        """Whether no history is being changed, nor was left partly changed by another process."""
        return not self._under_way and self._runtime.patches.settled.is_set()

    def is_whole(self, step: int, works: int) -> bool:
        """See StateCheck. works: how many had begun before."""
        return self._is_quiet and self._works == works and step not in self._between

    def rollback(self, step: int, listener: Listener) -> None:
        """As HostedRuntime.rollback."""
        self._runtime.rollback(step, listener)

    def keep(self, listener: Listener, label: str = LABEL) -> None:
        """Snapshots the live state as that of the head. The listener gets a KeptReply, or UnavailableError."""
        head = self._runtime.history.tree.head
        supervisor = self._runtime.started()
        supervisor.submit(keeping(label, listener, OWNER, head))

    def branch(self, step: int) -> None:
        """The step becomes the head; the live state stays the same."""
        self._runtime.history.moved(step, "a patch goes on from here")

    def reuse(self, record: StepRecord) -> StepRecord:
        """A new step, which becomes the head, with the result of this one."""
        number = self._runtime.new_step()
        self._runtime.recorder.counts.add(REUSED)
        return self._runtime.history.ended(
            replace(record, number=number, origin=record.number, outcome="reused")
        )

    def completed(self, step: int) -> None:
        """The snapshot of this step now has its state, though it had not when the step had run."""
        self._between.discard(step)

    def between_all(self, numbers: Iterable[int]) -> None:
        """States of these numbers, if there are any, belong to no step."""
        self._between.update(numbers)

    @contextmanager
    def admitted(self, admission: Admission) -> Iterator[None]:
        """Usage of cells that are run again inside is counted for the sender."""
        self._admission = admission
        try:
            yield
        finally:
            self._admission = admit_all

    def between(self) -> int:
        """A number for a state that belongs to no step."""
        number = self._runtime.new_step()
        self._between.add(number)
        return number

    def versions(self, locations: Sequence[Location], listener: Listener, *, author: str = "") -> None:
        """Queues a request for the present versions. The listener gets a VersionsReply, or a RefusedReply.

        author: whose directory, environment and import path are meant.
        """
        self._runtime.submissions.submit(asking_versions(locations, listener, self._seat(author)))

    def carry(self, step: int, locations: Sequence[Location], listener: Listener) -> None:
        """Queues bringing these over, as one group, from the state after a step that has a snapshot.

        What is missing in that state is removed. The listener gets a DoneReply, or a RefusedReply with the reason in
        its message: nothing has changed then. It is no step of its own in the history.
        """
        self._mend(carrying(step, locations, listener, OWNER))

    def borrow(self, step: int, locations: Sequence[Location], listener: Listener) -> None:
        """As `carry`, from the jail that waits beside the present one, whose state is that after the step."""
        self._mend(self.second_jail.borrow(step, locations, listener))

    def forget(self, locations: Sequence[Location], listener: Listener) -> None:
        """Queues the removal of names and files from the live state; as `carry`."""
        self._mend(forgetting(locations, listener, OWNER))

    def arrange(self, names: Sequence[Location], listener: Listener, *, whole: bool) -> None:
        """Queues putting these names into this order; as `carry`. whole: the state is otherwise right, and its number
        stays the same."""
        request = arranging(names, listener, OWNER)
        if whole:
            self._runtime.submissions.submit(request)
        else:
            self._mend(request)

    def load(self, modules: Sequence[str], listener: Listener) -> None:
        """Queues the import of those of these that can be imported; as `carry`."""
        self._mend(loading(modules, listener, OWNER))

    def _mend(self, request: JailRequest) -> None:
        """Submits a request whose end state belongs to no step."""
        request.step = self.between()
        self._runtime.submissions.submit(request)

    def run(
        self, rerun: Rerun, listener: Listener, refused: Callable[[UnrecordedCall], None]
    ) -> Withdraw | None:
        """Queues the cell; the listener gets an ExecutionResult. refused: called before, with a refused call."""
        record = rerun.record
        replays = self._runtime.replays
        calls = made_calls(self.history.tree, record) if record is not None else ()
        replay = HostCallReplay(calls, tentative=rerun.tentative)

        def ended(outcome: Outcome) -> None:
            replays.end()
            if replay.stopped is not None:
                refused(replay.stopped)
            step = getattr(outcome, "step", 0)
            if rerun.tentative and step:
                self._between.add(step)

        replays.begin(replay, self._runtime.interrupt)
        try:
            with self._admission(rerun.code) as entry:
                return self._runtime.execute(
                    rerun.code,
                    self._limit(rerun),
                    RecordingListener(listener, ended),
                    seat=self._seat(record.author if record else ""),
                    cause=rerun.cause,
                    entry=entry,
                    origin=record.number if record else 0,
                    on_error="rollback" if record is not None and record.atomic else "keep",
                )
        except BaseException:  # nothing was queued
            replays.end()
            raise

    def _limit(self, rerun: Rerun) -> float | None:
        """None for the policy's limit."""
        own = rerun.record.timeout if rerun.record is not None else 0
        return own or (None if rerun.timeout is None and self._runtime.policy.cell_timeout else rerun.limit)

    def put(self, record: StepRecord, cause: str, listener: Listener) -> None:
        """Queues a client's change without code, as a new step. The listener gets a DoneReply, or a RefusedReply.

        Only while it `keeps` the injection.
        """
        seat, submissions = self._seat(record.author), self._runtime.submissions
        if record.changes_file:
            ask = _again(record, self.history.files.get(record.content))
            submissions.file(replace(ask, stands_for=record, cause=cause), listener, seat)
            return
        change = ClientChange(kind=record.kind, names=record.names, stands_for=record, cause=cause)
        if record.kind == "deletion":
            submissions.submit(jail_requests.delete(record.names[0], listener, seat), change)
            return
        injection = self._runtime.noted.find(record.content)
        assert injection is not None, "asked for a step that is not repeatable"
        submissions.injection_again(injection, change, listener, seat)

    def keeps(self, record: StepRecord) -> bool:
        """Whether its injection, if it is one, can be made again now."""
        return record.kind != "injection" or self._runtime.noted.keeps(record.content)

    def _seat(self, author: str) -> AuthorSession:
        """Steps are run in sessions of their authors: with their directory, environment and import path."""
        return self._seats.setdefault(author, AuthorSession(author=author))


def _again(record: StepRecord, data: bytes | None) -> WorkdirRequest:
    """data: see History.files."""
    if record.kind == "removal":
        return WorkdirRequest.removed(record.names[0])
    assert data is not None, "asked for a step that is not repeatable"
    return WorkdirRequest.written(record.names[0], data)
