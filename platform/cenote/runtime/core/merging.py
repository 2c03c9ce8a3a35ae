"""Merges: what a branch has changed comes back to the runtime that it was forked from.

Variables that share objects come in one pickle, which keeps that, and functions look names up in the namespace that
they come into. Files that the branch has written come, and states of the process that can be carried. What else the
record knows of is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, Protocol, get_args, runtime_checkable

from cenote.runtime.core import file_requests as requests
from cenote.runtime.core.backend import ForkingBackend
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.core.merge_bases import MergeBase, MergeBases, merged_alone
from cenote.runtime.core.replies import done, reference
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.inject.injectables import check_name
from cenote.runtime.inject.injection import names_parcel, stays_here
from cenote.runtime.inject.references import ObjectReference
from cenote_security.errors import (
    CenoteError,
    FileRefusedError,
    NotTransferableError,
    UnknownFileError,
    UnknownNameError,
    UsageError,
)
from cenote_worker.execution.trace import (
    ABSENT,
    HIDDEN,
    LIBRARIES,
    TREE,
    Location,
    Version,
    file,
    form_of,
    hidden,
    key_of,
    kind_of,
)
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import StepTree
from cenote_worker.runtime.jail_requests import WorkdirRequest
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import ForkPoint
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.supervisor.requests import Listener, Outcome

OnConflict = Literal["refuse", "theirs", "ours"]

_OWN: Final = frozenset(("_", "__builtins__", "__name__", "__doc__", "__package__", "__loader__", "__spec__"))
"""Each side's own. What was displayed last, `_`, changes with most cells, and would always be a conflict."""

_OWN_STATES: Final = {
    **dict.fromkeys(("random", "numpy.random", "torch.random"), "random numbers"),
    "cwd": "relative paths", "locks": "locks of files", "asyncio": "tasks",
}  # fmt: skip
"""Which random numbers come next, where each side is, and what its process has open: each side's own."""

_UNSEEN: Final = Version("?")
"""Of what a step changed that was not traced: equal to nothing."""


_Given = tuple[tuple[str, ...], ObjectReference]
"""Names, and the one value that has them all."""


@runtime_checkable
class SharesTogether(Protocol):
    """A Backend that shares several variables as one value."""

    def share_together(self, names: Sequence[str], states: Sequence[str], listener: Listener) -> None:
        """states: of the process and its libraries, which go along. See HostedRuntime."""


class MergeConflictError(CenoteError):
    """Both runtimes have changed a variable or a file since the fork. Nothing was merged. names: of these."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names

    def __str__(self) -> str:
        return (
            f"both sides have changed {', '.join(self.names)} since the fork; nothing was merged. "
            'Pass on_conflict="theirs" or "ours", or the names to merge'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What a merge did. taken, deleted: names whose value is now the branch's. conflicts: changed by both sides.

    files: paths of files that are as in the branch now, or removed. states: of the process and libraries, likewise.
    left: what the branch has changed and cannot give away, with the reason. notes: what else is not as if this
    runtime had run the branch's cells, a line each. unsure: steps of either side, the branch's behind ours, which may
    have changed more than was seen.
    """

    taken: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[int, ...] = ()


def branch_core(branch: object) -> RuntimeCore:
    """What a caller gave as a branch. Raises UsageError for anything but a runtime."""
    core = getattr(branch, "core", None)
    if not isinstance(core, RuntimeCore):
        raise UsageError(f"a merge takes a runtime that `fork` has made, not {type(branch).__name__}")
    return core


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChanges:
    """What one side did since the fork: the version that each name came to have, and the steps to be unsure of.

    others: the versions of files, states and modules, by location. groups: by name, the names that it shared objects
    with when it was written last, itself among them.
    """

    versions: Mapping[str, Version]
    unsure: tuple[int, ...]
    others: Mapping[str, Version] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[str]:
        """Keys of locations that are no names."""
        return [key_of(Location(each)) for each in self.others if kind_of(Location(each)) == kind]


def changes(steps: Iterable[StepRecord]) -> BranchChanges:
    """Sums up a line of steps. Pure."""
    versions: dict[str, Version] = {}
    others: dict[str, Version] = {}
    groups: dict[str, frozenset[str]] = {}
    unsure = []
    for record in steps:
        if record.unknown:
            unsure.append(record.number)
            versions.update(dict.fromkeys(record.names, _UNSEEN))
        if record.trace is not None and not record.private:
            writes = record.trace.writes.items()
            versions.update((key_of(place), version) for place, version in writes if kind_of(place) == "name")
            others.update(
                (place, version)
                for place, version in writes
                if kind_of(place) in ("file", "hidden", "module")
            )
            for group in record.trace.groups:
                members = frozenset(key_of(place) for place in group if kind_of(place) == "name")
                groups.update(dict.fromkeys(members, members))
    return BranchChanges(versions=versions, unsure=tuple(unsure), others=others, groups=groups)


def conflicts(ours: BranchChanges, theirs: BranchChanges, names: Iterable[str]) -> tuple[str, ...]:
    """Of these names, those that both sides have changed, and not to the same. Pure."""
    return tuple(
        name
        for name in names
        if name in ours.versions
        and name in theirs.versions
        and (ours.versions[name] != theirs.versions[name] or ours.versions[name].startswith("?"))
    )


def merge(
    core: RuntimeCore, branch: RuntimeCore, names: Iterable[str] | None, on_conflict: OnConflict
) -> Merge:
    """See PythonRuntime.merge. Blocks."""
    if on_conflict not in get_args(OnConflict):
        raise UsageError(f"on_conflict is one of {', '.join(get_args(OnConflict))}, not {on_conflict!r:.100}")
    if names is not None and not isinstance(names, Iterable):
        raise UsageError(f"names is a list of names, not {names!r:.100}")
    _check_places(core, branch)
    return _Merging(core, branch, on_conflict, names).carried_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeForecast:
    """What a merge of all that a branch has changed would do, as far as the records say. Nothing has happened yet.

    names, files, states: what would come, or be removed. conflicts: names and files among these that both sides have
    changed. notes, left, unsure: as in Merge; more may be left, since what cannot be given away is not known before.
    heads: the steps whose states would be merged, this runtime's and the branch's.
    """

    names: tuple[str, ...]
    files: tuple[str, ...]
    states: tuple[str, ...]
    conflicts: tuple[str, ...]
    notes: tuple[str, ...]
    left: Mapping[str, str]
    unsure: tuple[int, ...]
    heads: tuple[int, int]


def forecast_merge(core: RuntimeCore, branch: RuntimeCore) -> MergeForecast:
    """Of a merge of everything. Raises UsageError where there can be none. Blocks."""
    _check_places(core, branch)
    return _Merging(core, branch, "refuse", None).forecast()


class _Merging:
    """One merge."""

    def __init__(
        self, core: RuntimeCore, branch: RuntimeCore, on_conflict: OnConflict, names: Iterable[str] | None
    ) -> None:
        self._core, self._branch = core, branch
        self._on_conflict = on_conflict
        self._all = names is None
        """Else certain names are merged, and nothing besides."""
        self._here, self._there = core.read_history(), branch.read_history()
        self._ours, self._theirs = _sides(self._here, self._there, _origin(branch), core.merge_bases)
        self._wanted = _wanted(branch, self._theirs, names)
        self._notes: list[str] = []
        self._left: dict[str, str] = {}

    def forecast(self) -> MergeForecast:
        paths, states = self._paths(), self._states()
        clash = conflicts(self._ours, self._theirs, self._wanted)
        self._name_what_stays()
        return MergeForecast(
            names=tuple(self._wanted),
            files=tuple(paths),
            states=tuple(states),
            conflicts=(*clash, *(path for path in paths if self._is_conflict(file(path)))),
            notes=tuple(dict.fromkeys(self._notes)),
            left=self._left,
            unsure=(*self._ours.unsure, *self._theirs.unsure),
            heads=(self._here.tree.head, self._there.tree.head),
        )

    def carried_out(self) -> Merge:
        paths, states = self._paths(), self._states()
        clash = conflicts(self._ours, self._theirs, self._wanted)
        clashing_files = tuple(path for path in paths if self._is_conflict(file(path)))
        if (clash or clashing_files) and self._on_conflict == "refuse":
            raise MergeConflictError((*clash, *clashing_files))
        wanted = self._wanted
        if self._on_conflict == "ours":
            wanted = [name for name in wanted if name not in clash]
            paths = [path for path in paths if path not in clashing_files]
        gone = [name for name in wanted if self._all and self._is_gone(name)]
        present = self._with_companions([name for name in wanted if name not in gone])
        # All that the branch gives is there before anything changes here.
        values = [each for group in self._together(present) for each in self._given(group)]
        settings = self._given((), states) if states else []
        files = [
            path for path in paths if self._brought(path)
        ]  # modules among them are imported by what comes next
        values = [given for given in values if self._put(*given)]
        settings = [given for given in settings if self._put(*given, states)]
        taken = [name for names, _ in values for name in names]
        deleted = [name for name in gone if self._deleted(name)]
        states = [state for state in states if settings and not self._was_lost(state)]
        self._name_what_stays()
        settled = [*taken, *deleted, *map(file, files), *map(hidden, states)]
        if self._on_conflict == "ours":
            settled += [*clash, *map(file, clashing_files)]
        self._note_base(settled)
        return Merge(
            taken=tuple(taken),
            deleted=tuple(deleted),
            conflicts=(*clash, *clashing_files),
            files=tuple(files),
            states=tuple(states),
            notes=tuple(dict.fromkeys(self._notes)),
            left=self._left,
            unsure=(*self._ours.unsure, *self._theirs.unsure),
        )

    def _note_base(self, settled: Sequence[str]) -> None:
        now = self._core.read_history()
        before = self._here.tree.head
        done = {key_of(Location(each)) if ":" in each else each for each in settled}
        if merged_alone(now.tree, before, done):
            base = MergeBase(now.tree.head, self._there.tree.head)
            self._core.merge_bases.note(self._there.id, settled, base)

    # -- names --

    def _with_companions(self, wanted: Sequence[str]) -> list[str]:
        """Also what shares objects with them in the branch, which would have others of its own otherwise."""
        found = dict.fromkeys(wanted)
        waiting = list(wanted)
        while waiting:
            name = waiting.pop()
            for other in sorted(self._theirs.groups.get(name, frozenset()) - found.keys()):
                if self._all and other not in self._ours.versions:
                    found[other] = None
                    waiting.append(other)
                else:
                    self._notes.append(
                        f"{name} shared objects with {other} in the branch; {other} is not merged"
                    )
        for name in wanted:
            for other in sorted(self._ours.groups.get(name, frozenset()) - found.keys()):
                self._notes.append(f"{other} shared objects with {name}; it goes on to have the former ones")
        return list(found)

    def _together(self, names: Sequence[str]) -> list[list[str]]:
        """In groups that share objects."""
        groups, done = list[list[str]](), set[str]()
        for name in names:
            if name in done:
                continue
            group, waiting = set[str](), [name]
            while waiting:
                member = waiting.pop()
                if member not in group:
                    group.add(member)
                    waiting += self._theirs.groups.get(member, frozenset()) & set(names)
            done |= group
            groups.append([each for each in names if each in group])
        return groups

    def _given(self, group: Sequence[str], states: Sequence[str] = ()) -> list[_Given]:
        """What of a group the branch can give away, in one piece; what it cannot is noted."""
        try:
            return [(tuple(group), self._shared(group, states))]
        except UnknownNameError:
            if not self._all:
                raise
            there = [name for name in group if self._is_there(name)]
            return self._given(there) if there and len(there) < len(group) else []
        except NotTransferableError as error:
            if not self._all:
                raise
            refused = self._refused(group, error) | {f"the state of {state}": str(error) for state in states}
            self._left.update(refused)
            rest = [name for name in group if name not in refused]
            return self._given(rest) if rest else []

    def _refused(self, group: Sequence[str], error: NotTransferableError) -> dict[str, str]:
        """Those that cannot be given away by themselves; all of them if each can."""
        found = dict[str, str]()
        for name in group if len(group) > 1 else ():
            try:
                self._shared((name,), ()).release()
            except NotTransferableError as own:
                found[name] = str(own)
        return found or dict.fromkeys(group, str(error))

    def _is_gone(self, name: str) -> bool:
        """Whether the branch does not have it. Of some names it is known only that they are as they were put in."""
        return self._theirs.versions[name] == ABSENT and not self._is_there(name)

    def _is_there(self, name: str) -> bool:
        try:
            self._shared((name,), ()).release()
        except UnknownNameError:
            return False
        except NotTransferableError:
            return True
        return True

    def _shared(self, names: Sequence[str], states: Sequence[str]) -> ObjectReference:
        backend, called = self._branch.backend, ", ".join(names)
        assert isinstance(backend, HostedRuntime | SharesTogether)
        return reference(_call(self._branch, partial(backend.share_together, names, states), called), called)

    def _put(self, names: Sequence[str], value: ObjectReference, states: Sequence[str] = ()) -> bool:
        """Whether this runtime could make them; what it could not make is noted."""
        parcel = names_parcel(names, value, self._core.backend.place)
        try:
            outcome = _call(self._core, partial(self._core.inject, parcel, replace=True), ", ".join(names))
        except NotTransferableError as error:
            if not self._all:
                raise
            self._left |= dict.fromkeys((*names, *(f"the state of {each}" for each in states)), str(error))
            return False
        if isinstance(outcome, DoneReply):
            self._notes += outcome.differing
        return True

    def _deleted(self, name: str) -> bool:
        """Whether it was here still."""
        try:
            _call(self._core, partial(self._core.delete, name), name)
        except UnknownNameError:
            return False
        self._core.forget([name])
        return True

    # -- files --

    def _is_conflict(self, location: str) -> bool:
        ours, theirs = self._ours.others.get(location), self._theirs.others[location]
        return ours is not None and (ours != theirs or ours.startswith("?"))

    def _paths(self) -> list[str]:
        """Of files that the branch has changed and this runtime has not changed in the same way."""
        if not self._all:
            return []
        changed = self._theirs.of_kind("file")
        paths = [path for path in changed if path != key_of(TREE) and not path.startswith("/")]
        if TREE in self._theirs.others and len(changed) == 1:
            self._notes.append(
                "the branch may have changed files, and it is not known which; they are not merged"
            )
        for path in changed:
            if path.startswith("/"):
                self._left[path] = "only files of the working directory are merged"
        return [
            path
            for path in paths
            if self._ours.others.get(file(path)) != self._theirs.others[file(path)]
            or self._is_conflict(file(path))
        ]

    def _brought(self, path: str) -> bool:
        version = self._theirs.others[file(path)]
        if version.startswith("folder"):  # which is made where a file of it is
            if not any(each.startswith(f"{path}/") for each in self._theirs.of_kind("file")):
                self._left[path] = "an empty folder is not merged"
            return False
        if form := form_of(version):
            self._notes.append(f"{path} comes without what it is besides its content: {form}")
        try:
            if version == ABSENT:
                self._asked(self._core, requests.deleting(path))
            else:
                ask = requests.reading(path, 0, None, self._branch.policy)
                content = requests.content_read(self._asked(self._branch, ask), ask)
                self._asked(self._core, requests.writing(path, content, self._core.policy, overwrite=True))
        except UnknownFileError:
            return False
        except (FileRefusedError, UsageError) as error:
            self._left[path] = str(error)
            return False
        return True

    @staticmethod
    def _asked(core: RuntimeCore, ask: WorkdirRequest) -> Outcome:
        return _call(core, partial(core.ask_file, ask), ask.shown)

    # -- states --

    def _states(self) -> list[str]:
        """Of the process and its libraries, those that the branch has changed and that are to come."""
        if not self._all:
            return []
        found = []
        for state in self._theirs.of_kind("hidden"):
            if state in _OWN_STATES:
                self._notes.append(f"this runtime's {_OWN_STATES[state]} stay as they are")
            elif state not in HIDDEN:
                self._left[f"the state of {state}"] = "it cannot be carried"
            elif self._is_conflict(hidden(state)) and self._on_conflict != "theirs":
                self._notes.append(f"both sides have changed the state of {state}; this runtime's stays")
            elif self._ours.others.get(hidden(state)) != self._theirs.others[hidden(state)]:
                found.append(state)
        return found

    def _was_lost(self, state: str) -> bool:
        """Whether it was found not to have come; then it is left."""
        called = f"the state of {state}"
        lost = [line for line in self._notes if line.startswith(f"{called}: ")]
        if lost:
            self._notes = [line for line in self._notes if line not in lost]
            self._left[called] = "it cannot be carried as it is"
        return bool(lost)

    def _name_what_stays(self) -> None:
        if self._all:
            for dotted in self._theirs.of_kind("module"):
                if dotted != key_of(LIBRARIES):
                    self._left[f"module {dotted}"] = "what was set in it is not merged"


def _check_places(core: RuntimeCore, branch: RuntimeCore) -> None:
    """Raises UsageError for an author who is attached, and where no value passes by reference."""
    for side in (core, branch):
        if side.author or not isinstance(side.backend, HostedRuntime | ForkingBackend):
            raise UsageError("only the owner of a runtime merges it, not an author who is attached")
    if core.backend.place != branch.backend.place:
        raise UsageError(
            "a merge takes a branch that `fork` of this very runtime has made, in the same place"
        )


def _origin(branch: RuntimeCore) -> ForkPoint | None:
    """A runtime of a platform may have been forked by another client."""
    if branch.origin is None and isinstance(branch.backend, ForkingBackend):
        return branch.backend.fork_point()
    return branch.origin


def _sides(
    ours: History, theirs: History, origin: ForkPoint | None, bases: MergeBases
) -> tuple[BranchChanges, BranchChanges]:
    """What each has changed of what they had in common last."""
    if origin is None or origin.history != ours.id:
        raise UsageError("a merge takes a branch that `fork` of this very runtime has made")
    our, their = since(ours.tree, origin.step), since(theirs.tree, origin.step)
    for base, names in bases.still(theirs.id, ours.tree, theirs.tree).items():
        our = _newer(our, names, since(ours.tree, base.ours))
        their = _newer(their, names, since(theirs.tree, base.theirs))
    return our, their


def _newer(changes: BranchChanges, names: frozenset[str], lately: BranchChanges) -> BranchChanges:
    """Of these names, only what was done to them lately."""
    versions, others = (
        {key: version for key, version in before.items() if key not in names}
        | {key: version for key, version in after.items() if key in names}
        for before, after in ((changes.versions, lately.versions), (changes.others, lately.others))
    )
    return replace(changes, versions=versions, others=others)


def since(tree: StepTree, fork: int) -> BranchChanges:
    """What is different at the head from what there was at a fork, on whose line a patch may have left it. Pure."""
    start = tree.ancestor(fork, tree.head)
    past, now = changes(tree.between(start, fork)), changes(tree.between(start, tree.head))
    was = past.versions
    versions = {
        name: version
        for name, version in now.versions.items()
        if version.startswith("?") or was.get(name) != version
    }
    others = {
        each: version
        for each, version in now.others.items()
        if version.startswith("?") or past.others.get(each) != version
    }
    before = changes(tree.line(start)).versions if was else {}
    # As it was before that step, there or put in at first or not.
    for name in was.keys() - now.versions.keys():
        versions[name] = _UNSEEN if before.get(name, ABSENT) != ABSENT else ABSENT
    return replace(now, versions=versions, others=others)


def _wanted(branch: RuntimeCore, theirs: BranchChanges, names: Iterable[str] | None) -> list[str]:
    if names is not None:
        wanted = list(dict.fromkeys([names] if isinstance(names, str) else names))
        for name in wanted:
            check_name(name, "variable")
        return wanted
    stay = {item.name for item in branch.items.values() if stays_here(item)}
    return [name for name in theirs.versions if name not in stay | _OWN]


def _call(core: RuntimeCore, queue: Callable[[Listener], None], name: str) -> Outcome:
    listener = BlockingListener()
    queue(listener)
    return done(listener.wait(core.resume), name)
