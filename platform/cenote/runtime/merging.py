"""Merges: variables of a branch come back to the runtime that it was forked from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, get_args

from cenote.runtime.branch_line import BranchLine
from cenote.runtime.core import RuntimeCore
from cenote.runtime.injectables import check_name
from cenote.runtime.injection import stays_here, value_parcel
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.merge_bases import MergeBase, MergeBases, merged_alone
from cenote.runtime.references import ObjectReference
from cenote.runtime.replies import done, reference, variables
from cenote_security.errors import CenoteError, NotTransferableError, UsageError
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import StepTree
from cenote_worker.hosted.branching import ForkPoint
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.trace import ABSENT, Version, key_of, kind_of

OnConflict = Literal["refuse", "theirs", "ours"]

_UNSEEN: Final = Version("?")
"""Of what a step changed that was not traced: equal to nothing."""


class MergeConflictError(CenoteError):
    """Both runtimes have changed a variable since the fork. Nothing was merged. names: of these variables."""

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

    left: what the branch has changed and cannot give away, with the reason. unsure: steps of either side, the
    branch's behind ours, which may have changed more than was seen.
    """

    taken: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[int, ...] = ()


def branch_core(branch: object) -> RuntimeCore:
    """What a caller gave as a branch. Raises UsageError for anything but a runtime."""
    core = getattr(branch, "core", None)
    if not isinstance(core, RuntimeCore):
        raise UsageError(f"a merge takes a runtime that `fork` has made, not {type(branch).__name__}")
    return core


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What one side did since the fork: the version that each name came to have, and the steps to be unsure of."""

    versions: Mapping[str, Version]
    unsure: tuple[int, ...]


def changes(steps: Iterable[StepRecord]) -> Changes:
    """Sums up a line of steps. Pure."""
    versions: dict[str, Version] = {}
    unsure = []
    for record in steps:
        if record.unknown:
            unsure.append(record.number)
            versions.update(dict.fromkeys(record.names, _UNSEEN))
        if record.trace is not None and not record.private:
            writes = record.trace.writes.items()
            versions.update((key_of(place), version) for place, version in writes if kind_of(place) == "name")
    return Changes(versions=versions, unsure=tuple(unsure))


def conflicts(ours: Changes, theirs: Changes, names: Iterable[str]) -> tuple[str, ...]:
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
    here, there = core.read_history(), branch.read_history()
    ours, theirs = _sides(here, there, _origin(branch), core.merge_bases)
    wanted = _wanted(branch, theirs, names)
    clash = conflicts(ours, theirs, wanted)
    if clash and on_conflict == "refuse":
        raise MergeConflictError(clash)
    if on_conflict == "ours":
        wanted = [name for name in wanted if name not in clash]
    shared, left = _shared(branch, wanted, strict=names is not None)
    deleted = (
        [] if names is not None else _deleted(core, theirs, [name for name in wanted if name not in shared])
    )
    for name, value in shared.items():
        _put(core, name, value)
    for name in deleted:
        _call(core, partial(core.delete, name), name)
        core.forget([name])
    settled = [*shared, *deleted, *(clash if on_conflict == "ours" else ())]
    now = core.read_history()
    if merged_alone(now.tree, here.tree.head, settled):
        core.merge_bases.note(there.id, settled, MergeBase(now.tree.head, there.tree.head))
    return Merge(
        taken=tuple(shared),
        deleted=tuple(deleted),
        conflicts=clash,
        left=left,
        unsure=(*ours.unsure, *theirs.unsure),
    )


def _check_places(core: RuntimeCore, branch: RuntimeCore) -> None:
    """Raises UsageError for an author who is attached, and where no value passes by reference."""
    for side in (core, branch):
        if side.author or not isinstance(side.backend, HostedRuntime | BranchLine):
            raise UsageError("only the owner of a runtime merges it, not an author who is attached")
    if core.backend.place != branch.backend.place:
        raise UsageError(
            "a merge takes a branch that `fork` of this very runtime has made, in the same place"
        )


def _origin(branch: RuntimeCore) -> ForkPoint | None:
    """A runtime of a platform may have been forked by another client."""
    if branch.origin is None and isinstance(branch.backend, BranchLine):
        return branch.backend.fork_point()
    return branch.origin


def _sides(
    ours: History, theirs: History, origin: ForkPoint | None, bases: MergeBases
) -> tuple[Changes, Changes]:
    """What each has changed of what they had in common last."""
    if origin is None or origin.history != ours.id:
        raise UsageError("a merge takes a branch that `fork` of this very runtime has made")
    our, their = since(ours.tree, origin.step), since(theirs.tree, origin.step)
    for base, names in bases.still(theirs.id, ours.tree, theirs.tree).items():
        our = _newer(our, names, since(ours.tree, base.ours))
        their = _newer(their, names, since(theirs.tree, base.theirs))
    return our, their


def _newer(changes: Changes, names: frozenset[str], lately: Changes) -> Changes:
    """Of these names, only what was done to them lately."""
    others = {name: version for name, version in changes.versions.items() if name not in names}
    latest = {name: version for name, version in lately.versions.items() if name in names}
    return replace(changes, versions=others | latest)


def since(tree: StepTree, fork: int) -> Changes:
    """What is different at the head from what there was at a fork, on whose line a patch may have left it. Pure."""
    start = tree.ancestor(fork, tree.head)
    was, now = changes(tree.between(start, fork)).versions, changes(tree.between(start, tree.head))
    versions = {
        name: version
        for name, version in now.versions.items()
        if version.startswith("?") or was.get(name) != version
    }
    before = changes(tree.line(start)).versions if was else {}
    # As it was before that step, there or put in at first or not.
    for name in was.keys() - now.versions.keys():
        versions[name] = _UNSEEN if before.get(name, ABSENT) != ABSENT else ABSENT
    return Changes(versions=versions, unsure=now.unsure)


def _wanted(branch: RuntimeCore, theirs: Changes, names: Iterable[str] | None) -> list[str]:
    if names is not None:
        wanted = list(dict.fromkeys([names] if isinstance(names, str) else names))
        for name in wanted:
            check_name(name, "variable")
        return wanted
    stay = {item.name for item in branch.items.values() if stays_here(item)}
    # What was displayed last, `_`, is each side's own: it changes with most cells, and would always be a conflict.
    own = stay | {"_"}
    return [name for name in theirs.versions if not name.startswith("__") and name not in own]


def _shared(
    branch: RuntimeCore, wanted: Iterable[str], *, strict: bool
) -> tuple[dict[str, ObjectReference], dict[str, str]]:
    """References to what the branch has, all before anything changes; and what cannot be had. strict: raises."""
    there = {info.name for info in variables(_call(branch, branch.describe, ""))}
    shared: dict[str, ObjectReference] = {}
    left: dict[str, str] = {}
    for name in wanted:
        if name not in there and not strict:
            continue
        try:
            shared[name] = reference(_call(branch, partial(branch.share, name), name), name)
        except NotTransferableError as error:
            if strict:
                raise
            left[name] = str(error)
    return shared, left


def _deleted(core: RuntimeCore, theirs: Changes, wanted: Iterable[str]) -> list[str]:
    """What the branch has deleted and is still here."""
    there = {info.name for info in variables(_call(core, core.describe, ""))}
    return [name for name in wanted if theirs.versions[name] == ABSENT and name in there]


def _put(core: RuntimeCore, name: str, value: ObjectReference) -> None:
    parcel = value_parcel(name, value, core.backend.place)
    _call(core, partial(core.inject, parcel, replace=True), name)


def _call(core: RuntimeCore, queue: Callable[[Listener], None], name: str) -> Outcome:
    listener = BlockingListener()
    queue(listener)
    return done(listener.wait(core.resume), name)
