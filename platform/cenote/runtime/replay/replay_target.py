"""A runtime as patches are applied to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from cenote.harness.patching.errors import (
    NoWayError,
    StalePlanError,
    StepNotRepeatedError,
    not_put_in_again,
)
from cenote.harness.planning.replay_target import EffectNotRepeatedError, NotCarriedError
from cenote.harness.planning.state_contents import found_at_first
from cenote.harness.record.location_text import named
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.core.replies import done, result, rollback, snapshots
from cenote_security.errors import NotKeptError, UnavailableError
from cenote_security.printable import printable
from cenote_security.rules import CheckSession, SecurityError
from cenote_worker.checkpoints.errors import CheckpointError, carried_out
from cenote_worker.execution.results import SnapshotInfo
from cenote_worker.execution.trace import ABSENT, Location, Version, file, key_of, name
from cenote_worker.history.step import START, StepRecord
from cenote_worker.jail.cells.ipython_syntax import to_python
from cenote_worker.runtime.replay import UnrecordedCall
from cenote_worker.runtime.reruns import Rerun, Reruns
from cenote_worker.supervisor.frame_parser import RefusedReply, VersionsReply
from cenote_worker.supervisor.requests import Listener, Outcome


class RuntimeReplayTarget:
    """See Ground. Others may use the runtime meanwhile; what they do to it is noticed, and ends the work."""

    def __init__(
        self,
        reruns: Reruns,
        resume: Callable[[], None],
        rules: CheckSession | None,
        *,
        atomic: bool,
        cause: str = "",
    ) -> None:
        """resume: see BlockingListener. rules: that code must pass. atomic: never give up what is kept.

        cause: of steps whose code is not the recorded one.
        """
        self._reruns = reruns
        self._second = reruns.second_jail
        self._working = False
        self._storing: Callable[[], None] | None = None
        """How what the last work has led to is stored, as long as it is not."""
        self._end = START
        """Of the line that there was when the work began."""
        self._waiting: int | None = None
        """The present step, where its state cannot be kept: then the jail that has it waits beside a second one."""
        self._moved = False
        """Whether something was brought over, or taken away, since the state was last kept or gone back to."""
        self.step_timeout: float | None = None
        """See ApplyOptions."""
        self._notes: list[str] = []
        self._resume = resume
        self._rules = rules
        self._atomic = atomic
        self._cause = cause

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def head(self) -> int:
        return self._reruns.history.tree.head

    def kept(self) -> frozenset[int]:
        if self._waiting is not None:
            return frozenset()
        known = {info.step for info in self._snapshots()}
        return frozenset(known - {self._second.step} if self._second.runs else known)

    def stored(self) -> Mapping[int, int]:
        """The present one is none of them: where it is gone back to, it is with the objects that there are."""
        present = self._end if self._working else self.head()
        found = {step: since for step, since in self._second.refill.stored().items() if step != present}
        return found if self._second.obstacle else {**found, START: START}

    def lent(self) -> frozenset[int]:
        return frozenset((self._waiting,) if self._waiting is not None and self._second.lends else ())

    @contextmanager
    def holding(self) -> Iterator[None]:
        if self._working:  # part of other work, at the end of which it is let go
            yield
            return
        let_go = self._reruns.hold(info.step for info in self._snapshots())
        self._working, self._end = True, self.head()
        try:
            yield
        finally:
            self._working, self._waiting = False, None
            let_go()
            self._storing = self._way_to_store()

    def _way_to_store(self) -> Callable[[], None] | None:
        """How the state that the work has led to is stored; None where that is the one before it."""
        if self._second.stay():
            return self._second.store
        return self._reruns.store if self.head() != self._end else None

    def store(self, outcome: object) -> None:
        """Stores what the work has led to, where no step has. Raises NotDurableError, which has the outcome."""
        store, self._storing = self._storing, None
        if store is not None:
            with carried_out(outcome):
                store()

    def keep(self, *, partial: bool = False) -> bool:
        if self._second.runs:
            return False
        if not self._moved and any(info.step == self.head() and info.label for info in self._snapshots()):
            return True
        outcome = self._call(self._reruns.keep)
        if isinstance(outcome, UnavailableError):
            if self._atomic and self.stored():
                self._waiting = self.head()
            return self._waiting is not None
        done(outcome, "")
        self._moved = False
        if not partial:
            self._reruns.completed(self.head())
        return True

    def rollback(self, step: int) -> Collection[str]:
        self._moved = False
        if self._working and self._is_elsewhere(step):
            self._begin_beside(step)
            return ()
        if self._second.runs and step != self._second.step:
            self._second.give_up()
            if step == self._waiting:
                self._reruns.branch(step)
                return ()
        return rollback(self._call(partial(self._reruns.rollback, step))).severed

    def _is_elsewhere(self, step: int) -> bool:
        """Whether a jail has to be begun for the state after this step."""
        if self._second.runs and step == self._second.step:
            return step not in (info.step for info in self._snapshots())
        return step not in self.kept() and step in self.stored()

    def _begin_beside(self, step: int) -> None:
        intact = self._waiting is not None
        if step == START:
            self._second.begin(intact=intact)
            self._check_start()
            self._begin_as_then()
            return
        try:
            self._second.begin_at(step, intact=intact)
        except (CheckpointError, NotKeptError, UnavailableError) as error:
            self._notes.append(f"the checkpoint after step {step} could not be begun from: {error}")
            raise NotKeptError(step) from error
        # To go back to without reading it again; where it cannot be kept, it is read.
        self._call(self._reruns.keep)

    def unlike(self, step: int, versions: Mapping[Location, Version]) -> frozenset[Location]:
        rebuilt = {name(each) for each in self._second.refill.rebuilt(step)} if step != START else set()
        asked = {each: version for each, version in versions.items() if each not in rebuilt}
        now = self.versions(asked)
        return frozenset(each for each, version in asked.items() if now.get(each) != version)

    def branch(self, step: int) -> None:
        self._reruns.branch(step)

    def execute(self, record: StepRecord | None, code: str, *, tentative: bool) -> StepRecord:
        if record is not None and not record.repeatable:
            raise StepNotRepeatedError(record)
        if record is not None and record.by_hand:
            return self._do_again(record, tentative=tentative)
        self._check(code)
        parent, refused = self.head(), list[UnrecordedCall]()
        cause = record.cause if record is not None and record.code == code else self._cause
        rerun = Rerun(code=code, record=record, cause=cause, tentative=tentative, timeout=self.step_timeout)
        number = self._run(rerun, refused.append)
        if refused:
            raise EffectNotRepeatedError(refused[0].target, refused[0].method)
        return self._new(number, parent)

    def _do_again(self, record: StepRecord, *, tentative: bool) -> StepRecord:
        """What a client did without code. A file or a name that is not there need not be removed."""
        parent, removed = self.head(), _removed(record)
        if removed is not None and self.versions((removed,)).get(removed) == ABSENT:
            return self.reuse(record)
        if not self._reruns.keeps(record):
            raise StepNotRepeatedError(replace(record, content=""))
        outcome = self._call(partial(self._reruns.put, record, record.cause))
        if record.kind == "injection" and isinstance(outcome, RefusedReply):
            raise NoWayError(not_put_in_again(record, printable(outcome.message)))
        done(outcome, record.names[0])
        new = self._new(self.head(), parent)
        if tentative:
            self._reruns.between_all((new.number,))
        return new

    def _new(self, number: int, parent: int) -> StepRecord:
        """The step that was made behind this parent. Raises StalePlanError when others have been at work."""
        new = self._reruns.history.tree.get(number)
        if new.parent != parent:
            raise StalePlanError(parent, new.parent)
        return new

    def reuse(self, record: StepRecord) -> StepRecord:
        return self._reruns.reuse(record)

    def versions(self, locations: Iterable[Location], author: str = "") -> Mapping[Location, Version]:
        asked = sorted(locations)
        return self._asked(partial(self._reruns.versions, asked, author=author)) if asked else {}

    def _asked(self, queue: Callable[[Listener], None]) -> Mapping[Location, Version]:
        reply = self._call(queue)
        if isinstance(reply, Exception):
            raise reply
        return reply.versions if isinstance(reply, VersionsReply) else {}

    def carry(self, step: int, locations: frozenset[Location]) -> None:
        self._moved = True
        lender = self._second.runs and step == self._waiting
        bring = self._reruns.borrow if lender else self._reruns.carry
        outcome = self._call(partial(bring, step, sorted(locations)))
        if isinstance(outcome, RefusedReply):
            raise NotCarriedError(locations, printable(outcome.message))
        done(outcome, "")

    def forget(self, locations: frozenset[Location]) -> None:
        self._moved = True
        done(self._call(partial(self._reruns.forget, sorted(locations))), ", ".join(sorted(locations)))

    def arrange(self, names: Sequence[Location], *, whole: bool) -> None:
        if names:
            self._moved = True
            done(self._call(partial(self._reruns.arrange, names, whole=whole)), "the order of names")

    def load(self, modules: tuple[str, ...]) -> None:
        self._moved = True
        done(self._call(partial(self._reruns.load, modules)), ", ".join(modules))

    def _snapshots(self) -> tuple[SnapshotInfo, ...]:
        answers: SimpleQueue[tuple[SnapshotInfo, ...] | None] = SimpleQueue()
        self._reruns.snapshots(answers.put)
        return snapshots(answers.get())

    def _check_start(self) -> None:
        """Raises NoWayError where the first steps have found other values than they would now: a client that
        restores a runtime gives its initial state once more, which may be another one.
        """
        if not self._reruns.began_elsewhere:
            return
        line = self._reruns.history.tree.line(self._end)
        if others := self.other_start(line, self._reruns.recorded_stubs):
            names = named(others)
            raise NoWayError(f"the first steps have found another value, or another order of one, of {names}")

    def other_start(self, records: Sequence[StepRecord], stubs: frozenset[str]) -> Sequence[str]:
        """Names that the first of these steps have found with another value than they have now. stubs: those that
        begin as recorded host functions, which are the same whatever version of Cenote has made their stubs.
        """
        found = found_at_first(records)
        now = self.versions(found)
        others = {key_of(each) for each, version in found.items() if now.get(each, version) != version}
        return sorted(others - stubs)

    def _begin_as_then(self) -> None:
        """What no name leads to, such as the state of random numbers, is what the first steps have found, where the
        jail that waits has it still."""
        found = found_at_first(self._reruns.history.tree.line(self._end), "hidden")
        now = self.versions(found)
        others = [each for each, version in found.items() if now.get(each, version) != version]
        if not others or not self.lent():
            return
        there = self._asked(partial(self._second.versions, others))
        same = frozenset(each for each in others if there.get(each) == found[each])
        for location in same:
            with suppress(NotCarriedError):
                self.carry(self._end, frozenset((location,)))

    def _check(self, code: str) -> None:
        """Raises SecurityError: a patch brings in nothing that a cell may not."""
        if self._rules is not None and (violations := self._rules.check_code(to_python(code))):
            raise SecurityError(violations)

    def _run(self, rerun: Rerun, refused: Callable[[UnrecordedCall], None]) -> int:
        listener = BlockingListener()
        withdraw = self._reruns.run(rerun, listener, refused)
        try:
            found = result(listener.wait(self._resume))
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise
        if found.success and self._rules is not None:
            self._rules.succeeded()
        return found.step

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self._resume)


def _removed(record: StepRecord) -> Location | None:
    """What a client took away with this step; None if it did not."""
    match record.kind:
        case "removal":
            return file(record.names[0])
        case "deletion":
            return name(record.names[0])
    return None
