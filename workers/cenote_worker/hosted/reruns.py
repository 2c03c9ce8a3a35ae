"""What a history that was changed needs of a runtime: steps that stand for others, a head that moves by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cenote_worker.counts import REUSED
from cenote_worker.history.history import History
from cenote_worker.history.step import START, StepRecord
from cenote_worker.hosted import asks
from cenote_worker.hosted.carrying import arranging, asking_versions, carrying, forgetting, loading
from cenote_worker.hosted.change import Change
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.listeners import Admission, Noting, admit_all
from cenote_worker.hosted.replays import Replay, Unrepeated, made_calls
from cenote_worker.hosted.second_jail import SecondJail
from cenote_worker.hosted.snapshots import keeping
from cenote_worker.results import SnapshotInfo
from cenote_worker.supervisor.requests import OWNER, JailRequest, Listener, Outcome, Seat, Withdraw
from cenote_worker.trace import Location

if TYPE_CHECKING:
    from cenote_worker.hosted.legacy import Legacy
    from cenote_worker.hosted.runtime import HostedRuntime

LABEL: Final = "patch"
"""Of the state that a failed patch goes back to, and of the one that a patch has made: kept longer than others."""

RERUN_SECONDS: Final = 600.0
RERUN_TIMES: Final = 10
"""A step that is run again may take at least so many seconds, and so many times what it took before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """A cell to run as a new step. record: the step that it stands for, None for a new one. cause: for its record.

    tentative: the state may be wrong for it. Nothing outside is changed then, and what it leaves is nobody's state.
    timeout: seconds, where neither the record nor the policy has a limit; see `limit`.
    """

    code: str
    record: StepRecord | None
    cause: str
    tentative: bool
    timeout: float | None = None

    @property
    def limit(self) -> float:
        """Seconds that it may take at most. What it waits for may never come in the state that it is run in."""
        took = self.record.duration if self.record is not None else 0.0
        return self.timeout or max(RERUN_SECONDS, RERUN_TIMES * took)


@dataclass(frozen=True, slots=True)
class Telling:
    """Whether a copy of the live state is that of a step. works: that had begun before it. quiet: all had ended."""

    reruns: Reruns
    works: int
    quiet: bool

    def holds(self, step: int) -> bool:
        """Behind the copy, which its jail has said to be made at the end of this step."""
        return step != START and self.quiet and self.reruns.is_whole(step, self.works)


class Reruns:
    """Of one runtime. Used by one caller at a time."""

    def __init__(self, runtime: HostedRuntime, legacy: Legacy) -> None:
        self._runtime = runtime
        self._between: set[int] = set()
        """Numbers under which the jail keeps states that are those of no step: made on the way to another."""
        self._works = 0
        """Pieces of work that have begun: see `hold`."""
        self._under_way = 0
        self._worker = 0
        """The thread whose piece of work is under way, if one is."""
        self._seats: dict[str, Seat] = {"": OWNER}
        self._admission: Admission = admit_all
        self.second_jail = SecondJail(runtime, legacy)

    @property
    def history(self) -> History:
        return self._runtime.history

    @property
    def began_elsewhere(self) -> bool:
        """See HostedRuntime."""
        return self._runtime.began_elsewhere

    def is_between(self, number: int) -> bool:
        """Whether the state of this number is that of no step."""
        return number in self._between

    def snapshots(self, answer: Callable[[tuple[SnapshotInfo, ...] | None], None]) -> None:
        """As HostedRuntime.snapshots."""
        self._runtime.snapshots(answer)

    def hold(self, steps: Iterable[int]) -> Callable[[], None]:
        """What is kept of these states stays, unless memory is short, until what this returns is called: at the end
        of a piece of work, in which states may be those of no step.

        The end of this process lets go as well.
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
        """Whether what this thread asks for is part of a piece of work. Nothing of that is stored by itself: whoever
        restores the runtime before its end finds the state before it.
        """
        return self._worker == threading.get_ident()

    def store(self) -> None:
        """What a piece of work has led to, if every change is stored. Blocks. Raises CheckpointError."""
        self._runtime.refill.worked()

    def telling(self) -> Telling:
        """To be asked for before the live state is copied."""
        return Telling(self, self._works, quiet=self._is_quiet)

    @property
    def _is_quiet(self) -> bool:
        """Whether no history is being changed, nor was left in the middle of that by another process."""
        return not self._under_way and self._runtime.patches.settled.is_set()

    def is_whole(self, step: int, works: int) -> bool:
        """See Telling. works: how many had begun before."""
        return self._is_quiet and self._works == works and step not in self._between

    def rollback(self, step: int, listener: Listener) -> None:
        """As HostedRuntime.rollback."""
        self._runtime.rollback(step, listener)

    def keep(self, listener: Listener, label: str = LABEL) -> None:
        """Keeps the live state as that of the head. The listener gets a KeptReply, or UnavailableError."""
        head = self._runtime.history.tree.head
        supervisor = self._runtime.started()
        supervisor.submit(keeping(label, listener, OWNER, head))

    def branch(self, step: int) -> None:
        """The step becomes the head; the live state stays what it is."""
        self._runtime.history.moved(step, "a patch goes on from here")

    def reuse(self, record: StepRecord) -> StepRecord:
        """A new step, which becomes the head, with the result of this one."""
        number = self._runtime.new_step()
        self._runtime.recorder.counts.add(REUSED)
        return self._runtime.history.ended(
            replace(record, number=number, origin=record.number, outcome="reused")
        )

    def completed(self, step: int) -> None:
        """What is kept as the state after this step is that by now, though it was not when the step had run."""
        self._between.discard(step)

    def between_all(self, numbers: Iterable[int]) -> None:
        """States of these numbers, if there are any, are those of no step."""
        self._between.update(numbers)

    @contextmanager
    def admitted(self, admission: Admission) -> Iterator[None]:
        """Cells that are run again meanwhile are counted as their sender's."""
        self._admission = admission
        try:
            yield
        finally:
            self._admission = admit_all

    def between(self) -> int:
        """A number for a state that is that of no step."""
        number = self._runtime.new_step()
        self._between.add(number)
        return number

    def versions(self, locations: Sequence[Location], listener: Listener, *, author: str = "") -> None:
        """Queues a question for versions as they are now. The listener gets a VersionsReply, or a RefusedReply.

        author: whose directory, environment and import path are meant.
        """
        self._runtime.submissions.submit(asking_versions(locations, listener, self._seat(author)))

    def carry(self, step: int, locations: Sequence[Location], listener: Listener) -> None:
        """Queues bringing these over, as one group, from the state after a step of which a snapshot is kept.

        What is not there in that state is not there afterwards. The listener gets a DoneReply, or a RefusedReply with
        the reason in its message: nothing has changed then. It is no step of its own in the history.
        """
        self._mend(carrying(step, locations, listener, OWNER))

    def borrow(self, step: int, locations: Sequence[Location], listener: Listener) -> None:
        """As `carry`, from the jail that waits beside the present one, whose state is that after the step."""
        self._mend(self.second_jail.borrow(step, locations, listener))

    def forget(self, locations: Sequence[Location], listener: Listener) -> None:
        """Queues the removal of names and files from the live state; as `carry`."""
        self._mend(forgetting(locations, listener, OWNER))

    def arrange(self, names: Sequence[Location], listener: Listener, *, whole: bool) -> None:
        """Queues putting these names into this order; as `carry`. whole: the state is right otherwise, and keeps its
        number."""
        request = arranging(names, listener, OWNER)
        if whole:
            self._runtime.submissions.submit(request)
        else:
            self._mend(request)

    def load(self, modules: Sequence[str], listener: Listener) -> None:
        """Queues the import of what can be imported of these; as `carry`."""
        self._mend(loading(modules, listener, OWNER))

    def _mend(self, request: JailRequest) -> None:
        """What it leaves is the state of no step."""
        request.step = self.between()
        self._runtime.submissions.submit(request)

    def run(self, rerun: Rerun, listener: Listener, refused: Callable[[Unrepeated], None]) -> Withdraw | None:
        """Queues the cell; the listener gets an ExecutionResult. refused: told before it, of a call not made."""
        record = rerun.record
        replays = self._runtime.replays
        calls = made_calls(self.history.tree, record) if record is not None else ()
        replay = Replay(calls, tentative=rerun.tentative)

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
                    Noting(listener, ended),
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
        """None for that of the policy."""
        own = rerun.record.timeout if rerun.record is not None else 0
        return own or (None if rerun.timeout is None and self._runtime.policy.cell_timeout else rerun.limit)

    def put(self, record: StepRecord, cause: str, listener: Listener) -> None:
        """Queues what a client did without code, as a new step. The listener gets a DoneReply, or a RefusedReply.

        Only while it `keeps` what is put in.
        """
        seat, submissions = self._seat(record.author), self._runtime.submissions
        if record.changes_file:
            ask = _again(record, self.history.files.get(record.content))
            submissions.file(replace(ask, stands_for=record, cause=cause), listener, seat)
            return
        change = Change(kind=record.kind, names=record.names, stands_for=record, cause=cause)
        if record.kind == "deletion":
            submissions.submit(asks.delete(record.names[0], listener, seat), change)
            return
        injection = self._runtime.noted.find(record.content)
        assert injection is not None, "asked for a step that is not repeatable"
        submissions.injection_again(injection, change, listener, seat)

    def keeps(self, record: StepRecord) -> bool:
        """Whether what it has put in, if it is an injection, can be put in again now."""
        return record.kind != "injection" or self._runtime.noted.keeps(record.content)

    def _seat(self, author: str) -> Seat:
        """Steps are run where their authors have run them: with their directory, environment and import path."""
        return self._seats.setdefault(author, Seat(author=author))


def _again(record: StepRecord, data: bytes | None) -> FileAsk:
    """data: see History.files."""
    if record.kind == "removal":
        return FileAsk.removed(record.names[0])
    assert data is not None, "asked for a step that is not repeatable"
    return FileAsk.written(record.names[0], data)
