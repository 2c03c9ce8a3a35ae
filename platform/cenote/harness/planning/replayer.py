"""Replays a patched history once, on a `Ground`: decides for each step whether it runs, and carries that out.

The same walk makes a plan, on a `Forecast`, and applies it, on a real runtime. The invariant at every moment:
`_stale` has all locations where the live state differs from the new history at this point. A step is run
only if nothing that it touches is stale; its trace shows afterwards whether that was so, and if not, the walk is
started again with what was learned. At the end nothing is stale. So by induction the live state is that of
a full run, provided that traces are complete and versions tell apart what a program can (the shape of the proofs
for build systems by verifying traces: "Forward build systems, formally", CPP 2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from cenote.harness.patching.errors import not_repeated
from cenote.harness.patching.patched_history import LineStep
from cenote.harness.planning.replay_state import (
    Carried,
    Course,
    NoWayOn,
    ReplayObserver,
    ReplayResult,
    RestartReplay,
    StepDecision,
)
from cenote.harness.planning.replay_target import EffectNotRepeatedError, Ground, NotCarriedError
from cenote.harness.planning.reuse import (
    asks_for_times,
    tells_names,
    why_again,
    why_misplaced,
    why_unsteady,
    writes_files,
)
from cenote.harness.planning.state_contents import (
    Contents,
    Timeline,
    effects,
    is_known,
    left_outside,
    made_by,
    reads_anything,
    writes_anything,
)
from cenote.harness.planning.stored_states import LOST, modules_before, to_compare, why_not_begun_with
from cenote.harness.record.code_names import mentioned_names
from cenote.harness.record.location_text import shown, spoken
from cenote_worker.execution.trace import (
    ABSENT,
    ANYTHING,
    DATABASES,
    LOCKS,
    RESULTS,
    TREE,
    Location,
    StepTrace,
    Version,
    imported,
    is_inside,
    key_of,
    kind_of,
    name,
)
from cenote_worker.history.step import StepRecord


class Replayer:
    """One walk. Raises RestartReplay or NoWayOn; the live state is then anywhere on the way."""

    def __init__(self, course: Course, ground: Ground, watcher: ReplayObserver) -> None:
        self._course = course
        self._ground = ground
        self._watcher = watcher
        timeline = Timeline(course.records, course.begun)
        shared = course.records[course.begin - 1].number if course.begin else 0
        sources = course.sources
        known = timeline.at({*sources, shared, course.base})
        self._sources = {step: known[step] for step in sorted(known.keys() & sources)}
        self._was = known[shared].copy()
        self._want = known[shared].copy()
        self._live = known[course.base].copy()
        if self._live.era != self._want.era:
            raise NoWayOn(f"step {self._live.era} may have changed anything")
        if not course.continues:
            self._leave(left_outside(course.records), made_by(course.records))
        self._stale = self._live.differing(self._want)
        self._told = course.begin
        self._shared_numbers = {record.number for record in course.records[: course.fork]}
        unchanged = [step.origin for step in course.line if step.origin is not None and not step.change]
        self._standing = {number for record in unchanged for number in (record.number, record.origin)}
        self._records = {record.number: record for record in course.records}
        self._asking = max(
            (at for at, step in enumerate(course.line) if step.origin and asks_for_times(step.origin)),
            default=-1,
        )
        """Position of the last step that asks when files were changed: which of two was later, it finds only if all
        files after the beginning are made anew, one step after the other."""
        self._blind = ""
        self._verdicts: list[StepDecision] = []
        self._carried: list[Carried] = []
        self._is_disordered = course.begins_beside
        """Whether names may be in another order than the live state says."""

    def _leave(self, files: Mapping[Location, Version], made: Set[Location]) -> None:
        """These are as the old line left them. What was there before its first step is not brought back.

        made: what was not there until a step of the old line had made it, which a state that is older than a step
        of which too little is known does not tell by itself.
        """
        for location, version in files.items():
            if location in made and not is_known(self._live.version(location)):
                for contents in (self._was, self._want, self._live):
                    contents.correct(location, ABSENT)
            if self._live.version(location) == ABSENT or self._live.writer(location):
                self._live.correct(location, version)

    def go(self) -> ReplayResult:
        """To the end of the line."""
        if self._course.begins_beside:
            self._compare()
        for position in range(self._course.begin, len(self._course.line)):
            step = self._course.line[position]
            self._tell_until(step)
            reason = self._why(position, step)
            self._watcher.before(position, step, reason)
            if reason:
                self._run(position, step, reason)
            elif step.origin is not None:
                self._reuse(step, step.origin)
        self._prepare({ANYTHING})
        self._arrange()
        return ReplayResult(verdicts=tuple(self._verdicts), carried=tuple(self._carried), contents=self._want)

    def _compare(self) -> None:
        """Of a stored state, only what has the recorded version counts as right."""
        if why := why_not_begun_with(self._course, self._live):
            raise NoWayOn(why)
        if modules := modules_before(self._course):
            self._ground.load(modules)
        lost = self._ground.unlike(self._course.base, to_compare(self._course, self._live))
        for contents in (self._live, self._sources[self._course.base]):
            for location in lost:
                contents.correct(location, LOST)
        self._recheck(lost)

    def _tell_until(self, step: LineStep) -> None:
        """Brings the account of the old line up to just before the step. One that runs in any case needs none, and
        may stand elsewhere than in the old line."""
        if step.origin is None or step.change:
            return
        records = self._course.records
        while records[self._told] is not step.origin:
            self._was.fold(records[self._told].number, effects(records[self._told]))
            self._told += 1

    def _why(self, position: int, step: LineStep) -> str:
        if step.change or step.origin is None:
            return step.change
        if self._blind and step.origin.status != "refused":
            return self._blind
        if reason := why_again(step.origin, self._was, self._want):
            return reason
        if forced := self._course.forced.get(step.number):
            return forced
        if not self._shared(step.origin) and (reason := why_unsteady(step.origin, self._was, self._want)):
            return reason
        if position < self._asking and writes_files(step.origin):
            return _out_of_time(self._course.line[self._asking])
        return why_misplaced(step.origin, self._standing) or self._why_versions(step.origin)

    def _shared(self, record: StepRecord) -> bool:
        """Whether both histories have it before they part: then what it gave is what it gave."""
        return record.number in self._shared_numbers

    def _why_versions(self, record: StepRecord) -> str:
        """The live state is asked as well: a change that no trace shows must not go unseen."""
        trace = effects(record) or StepTrace()
        fresh = [location for location in trace.reads if location not in self._stale]
        for location, version in self._ground.versions(fresh, record.author).items():
            if version != trace.reads[location]:
                self._want.correct(location, version)
                self._live.correct(location, version)
                return f"it reads {spoken(location)}, which is different now"
        return ""

    # -- steps that stand --

    def _reuse(self, step: LineStep, record: StepRecord) -> None:
        trace = effects(record) or StepTrace()
        if trace.modules and not self._course.continues:
            self._prepare(self._surroundings())
            self._ground.load(trace.modules)
            for location in map(imported, trace.modules):
                if location in trace.writes:
                    self._live.correct(location, trace.writes[location])
        new = self._ground.reuse(record)
        self._recheck(self._want.fold(record.number, trace))
        reason = "nothing that it depends on is different"
        self._verdicts.append(StepDecision(step=step, rerun=False, reason=reason, record=new))

    def _recheck(self, locations: Set[Location]) -> None:
        for location in locations - {TREE}:
            if self._want.agrees(self._live, location):
                self._stale.discard(location)
            else:
                self._stale.add(location)
        if TREE in locations:  # as `agrees` says, without a look at every file there is
            self._stale.discard(TREE)
            if self._has_stale_files() or not self._want.same_unlisted(self._live):
                self._stale.add(TREE)

    def _has_stale_files(self) -> bool:
        return any(kind_of(each) == "file" and each != TREE for each in self._stale)

    # -- steps that run --

    def _run(self, position: int, step: LineStep, reason: str) -> None:
        if step.origin is not None and not step.origin.repeatable:
            raise NoWayOn(not_repeated(step.origin))
        if step.origin is not None and self._course.continues and (other := self._imported(step.origin)):
            raise NoWayOn(f"`{shown(other)}` was imported, and may be another module now")
        looked_at = self._looked_at(step)
        needs = self._needs(position, step, looked_at)
        self._prepare(self._surroundings() | needs, looked_at)
        # It may ask for all names, which come in their order; or what it leaves counts as a whole state.
        if ANYTHING in needs or not self._stale:
            self._arrange()
        record = self._execute(position, step)
        self._verify(position, record)
        self._watcher.after(step, record)
        for contents in (self._want, self._live):
            for location, version in (record.trace.reads if record.trace else {}).items():
                contents.correct(location, version)
        trace = effects(record)
        self._recheck(self._want.fold(record.number, trace) | self._live.fold(record.number, trace))
        if writes_anything(trace):
            self._blind = f"{_named(step)} runs before it and may have changed anything"
        equal = not step.change and _same_writes(record.trace, step.origin.trace if step.origin else None)
        verdict = StepDecision(step=step, rerun=True, reason=reason, record=record, equal=equal)
        self._verdicts.append(verdict)

    def _imported(self, record: StepRecord) -> str:
        """A module that the step has brought in, and that another file may be now; empty if there is none."""
        trace = record.trace or StepTrace()
        files = [each for each in trace.reads if kind_of(each) == "file" and each != TREE]
        different = {key_of(each) for each in files if self._want.version(each) != trace.reads[each]}
        stems = {path.rpartition("/")[2].removesuffix(".py") for path in different}
        return min(stems & set(trace.modules), default="")

    def _execute(self, position: int, step: LineStep) -> StepRecord:
        tentative = bool(self._stale)
        try:
            return self._ground.execute(step.origin, step.code, tentative=tentative)
        except EffectNotRepeatedError:
            if tentative:  # it may have been about to make a call that the new history does not make
                raise RestartReplay(needs={position: frozenset((ANYTHING,))}) from None
            raise

    def _surroundings(self) -> set[Location]:
        """What programs reach without a name: stale files and hidden state are put right before anything runs. A step
        does not reach an imported module that it does not name; it reaches databases and locks only when it asks for
        them, and the inner state of a library only when it uses the library."""
        asked = {DATABASES, LOCKS, RESULTS}
        return {
            each
            for each in self._stale - asked
            if kind_of(each) not in ("name", "import") and not is_inside(each)
        }

    def _needs(self, position: int, step: LineStep, looked_at: Set[Location]) -> set[Location]:
        needs = set(self._course.needs.get(position, ()))
        trace = step.origin.trace if step.origin else None
        if step.origin is not None and reads_anything(trace):
            needs.add(ANYTHING)
        if trace is not None:
            needs |= trace.reads.keys() - looked_at
        return needs | {name(variable) for variable in mentioned_names(step.code)} - looked_at

    def _looked_at(self, step: LineStep) -> set[Location]:
        """What the step has read before, and not changed: names that share objects with that need not be right for
        it, unless it does otherwise now, which its trace shows."""
        trace = step.origin.trace if step.origin else None
        if trace is None or reads_anything(trace) or writes_anything(trace):
            return set()
        return trace.reads.keys() - trace.writes.keys() - frozenset[Location]().union(*trace.groups)

    def _verify(self, position: int, record: StepRecord) -> None:
        """Nothing that the step touched may have been stale, but for what it only replaced. Raises RestartReplay."""
        trace = record.trace
        if trace is None or reads_anything(trace) or writes_anything(trace):
            touched = set(self._stale)
        else:
            company = frozenset[Location]().union(*trace.groups) - trace.writes.keys()
            touched = self._stale & (self._found_otherwise(trace.reads) | trace.mutated | company)
            if self._changes_untold(trace):
                touched |= {location for location in self._stale if self._is_untold(location)}
        if tells_names(record):
            touched |= self._stale & (self._want.names ^ self._live.names)
        if touched:
            raise RestartReplay(needs={position: frozenset(touched)})
        if asks_for_times(record) and (left := [each for each in self._verdicts if _leaves_files(each)]):
            reason = _out_of_time(self._course.line[position])
            raise RestartReplay(forced={verdict.step.number: reason for verdict in left})

    def _found_otherwise(self, found: Mapping[Location, Version]) -> set[Location]:
        """What has another version than it should have, with its companions: it may be so for what they share."""
        other = {location for location, version in found.items() if self._want.version(location) != version}
        return other.union(*set(map(self._live.group, other)))

    def _changes_untold(self, trace: StepTrace) -> bool:
        """Whether it may have changed, in the new history, more than what shares objects in the live state."""
        grouped = frozenset[Location]().union(*(group for group in trace.groups if len(group) > 1))
        found = {location for location in grouped if trace.reads.get(location, ABSENT) != ABSENT}
        return any(self._want.company(location) is None for location in trace.mutated | found)

    def _is_untold(self, location: Location) -> bool:
        """Whether it is a name that is there, and what shares objects with it is not known."""
        return self._want.company(location) is None and is_known(self._want.version(location))

    # -- what is stale is put right --

    def _arrange(self) -> None:
        """Puts the names into their order, unless only steps have bound them since the state that this began with."""
        if self._is_disordered or self._live.order != self._want.order:
            self._ground.arrange(self._want.order, whole=not self._stale)
            self._live.arrange(self._want)
            self._is_disordered = False

    def _prepare(self, needs: set[Location], looked_at: Set[Location] = frozenset()) -> None:
        """looked_at: has to have the right version, which tells what it shares with older names, and no more."""
        wrong = {one for one in looked_at & self._stale if not self._want.same(self._live, one)}
        pending = set(self._stale) if ANYTHING in needs else self._company(needs | wrong)
        self._restore_files(
            {each for each in pending & self._stale if kind_of(each) == "file" and each != TREE}
        )
        forced: dict[int, str] = {}
        for location in sorted(pending, key=self._in_order):
            if location == TREE and self._has_stale_files():
                continue  # it will be right when they are
            if forced and self._is_gone(location):
                continue
            if location in self._stale and (missing := self._restore(location)):
                forced.update((missing,))
        if forced:
            raise RestartReplay(forced=forced)

    def _in_order(self, location: Location) -> tuple[int, int, Location]:
        """What comes into a folder comes after it, what goes out of it goes before it. All of that is right when each
        file is. What goes is last: it may be one that stays under another name, if a step is run for that."""
        depth = location.count("/")
        if location == TREE:
            return 2, 0, location
        return (1, -depth, location) if self._is_gone(location) else (0, depth, location)

    def _is_gone(self, location: Location) -> bool:
        """Whether it is a file that is not to be there."""
        return kind_of(location) == "file" and self._want.version(location) == ABSENT

    def _restore_files(self, files: Set[Location]) -> None:
        """Many at a time. Those that do not come over are left, and are tried one by one, for the reasons."""
        sources = {each: self._source(frozenset((each,))) for each in files}
        for step in sorted({step for step in sources.values() if step is not None}):
            self._carry(step, frozenset(each for each, source in sources.items() if source == step))

    def _company(self, needs: set[Location]) -> set[Location]:
        """All that shares objects with what is needed, now or as it should be, and so on; the stale of these."""
        reached: set[Location] = set()
        groups: set[frozenset[Location]] = set()
        pending = set(needs)
        while pending:
            location = pending.pop()
            reached.add(location)
            for group in {self._want.group(location), self._live.group(location)} - groups:
                groups.add(group)
                pending |= group - reached
        return reached & self._stale

    def _restore(self, location: Location) -> tuple[int, str] | None:
        """Makes one stale location, with its group, what the new history has here.

        Returns the number of the step that must be run for that, with the reason, if nothing else helps.
        """
        if self._want.version(location) == ABSENT and kind_of(location) in ("name", "file"):
            self._ground.forget(frozenset((location,)))
            self._settle(frozenset((location,)))
            return None
        group = self._want.group(location)
        step = self._source(group) if self._want.company(location) or self._may_be_absent(location) else None
        reason = self._carry(step, group) if step is not None else self._why_lost(group)
        return self._writer(self._lacking(location, group), reason) if reason else None

    def _lacking(self, location: Location, group: frozenset[Location]) -> Location:
        """Of a group, one to be written again: if the location is right but for its company, another one."""
        if not self._want.same(self._live, location):
            return location
        others = [one for one in sorted(group) if not self._want.same(self._live, one)]
        return max(others, key=self._want.writer, default=location)

    def _source(self, group: frozenset[Location]) -> int | None:
        for step, source in reversed(self._sources.items()):
            if self._has(source, group) and not self._why_unportable(source, group):
                return step
        return None

    def _has(self, source: Contents, group: frozenset[Location]) -> bool:
        """Whether all of it is there as it should be. Others may share its objects there: they are left out. When a
        file was changed, and how, no version says: so it has to be the one that the same step has left.
        """
        for location in group:
            company = source.company(location)
            alike = company == self._want.company(location) or (company is not None and group <= company)
            if not (alike and source.same(self._want, location)):
                return False
            if kind_of(location) == "file" and source.writer(location) != self._want.writer(location):
                return False
        return True

    def _carry(self, step: int, group: frozenset[Location]) -> str:
        """Empty, or why it did not come over."""
        self._is_disordered = self._is_disordered or any(kind_of(each) == "name" for each in group)
        try:
            self._ground.carry(step, group)
        except NotCarriedError as error:
            return error.reason
        found = self._ground.versions(group)
        for location in sorted(group):
            if self._may_be_absent(location):
                self._want.learn(location, ABSENT)
            wanted = self._want.version(location)
            if is_known(wanted) and found.get(location, wanted) != wanted:
                return f"{spoken(location)} does not come over as it was"
        self._settle(group)
        self._carried.append(Carried(step=step, locations=group))
        return ""

    def _settle(self, group: frozenset[Location]) -> None:
        """The group is right now. Who shared objects with it may be different for that: the live state is asked."""
        left = frozenset[Location]().union(*set(map(self._live.group, group))) - group
        for location, version in self._ground.versions(left).items():
            if is_known(self._live.version(location)):
                self._live.correct(location, version)
        self._recheck(self._live.take(self._want, group) | left)

    def _writer(self, location: Location, reason: str) -> tuple[int, str]:
        writer = self._want.writer(location)
        ahead = [step.origin for step in self._course.line[self._course.begin :] if step.origin is not None]
        if not any(record.number == writer for record in ahead):
            raise NoWayOn(f"{spoken(location)} is needed, and {reason}")
        return writer, f"{spoken(location)} is needed, and {reason}"

    def _may_be_absent(self, location: Location) -> bool:
        """Whether no step has recorded a name. One that is there nevertheless may share objects with any other."""
        return self._want.company(location) is None and not is_known(self._want.version(location))

    def _why_lost(self, group: frozenset[Location]) -> str:
        if any(self._want.company(location) is None for location in group):
            return "it is not known what shares objects with it"
        return self._why_unportable(self._want, group) or "no kept state has it as it was then"

    def _why_unportable(self, contents: Contents, group: frozenset[Location]) -> str:
        for location in sorted(group):
            if kind_of(location) == "file" and key_of(location).startswith("/"):
                return f"{spoken(location)} is none of the working directory, of which alone former states are kept"
            record = self._records.get(contents.writer(location))
            if record and record.trace and location in record.trace.unportable:
                return (
                    f"{spoken(location)} cannot be carried over ({shown(record.trace.unportable[location])})"
                )
        return ""


def _leaves_files(verdict: StepDecision) -> bool:
    """Whether a step was not run that has written some, so that they have the times of the old history."""
    return not verdict.rerun and verdict.step.origin is not None and writes_files(verdict.step.origin)


def _out_of_time(asking: LineStep) -> str:
    return f"it writes files, and {_named(asking)} asks when files were changed"


def _named(step: LineStep) -> str:
    return f"step {step.number}" if step.number else "a new step"


def _same_writes(new: StepTrace | None, old: StepTrace | None) -> bool:
    return new is not None and old is not None and dict(new.writes) == dict(old.writes)
