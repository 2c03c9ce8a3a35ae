"""What of a state that is not kept by value can be made again, and by which steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cenote_worker.checkpoints.rebuild import Rebuild
from cenote_worker.checkpoints.state import State
from cenote_worker.rebuilding.line import Line
from cenote_worker.rebuilding.obstacles import CannotRebuildError
from cenote_worker.rebuilding.sharing import Sharing
from cenote_worker.rebuilding.walk import Around, Stored, first_versions, steps_for
from cenote_worker.trace import Location, key_of, name

_Group = frozenset[Location]


def rebuild_of(state: State, line: Line, *, reaches_out: bool, injected: Iterable[str] = ()) -> Rebuild:
    """line: that led to the state. reaches_out: see `check_repeatable`. injected: see `Around`.

    As many as can be. What shares objects with a variable that is made again is made with it.
    """
    sharing = Sharing(line.steps, line.begun)
    around = Around(
        stored=Stored.of(state, line),
        injected=frozenset(map(name, injected)),
        sharing=sharing,
        first=first_versions(state, line),
        reaches_out=reaches_out,
    )
    groups = _groups(state, sharing)
    try:
        return _together(groups, line, around)
    except CannotRebuildError as error:
        if len(groups) == 1:
            return Rebuild(refused=_refused(groups[0], error))
    return _one_by_one(groups, line, around)


def _groups(state: State, sharing: Sharing) -> list[_Group]:
    """Of what cannot be kept, with what there is that shares objects with it."""
    there = set(map(name, state.message.names)) - set(map(name, state.message.hosts))
    unkept = [name(thing.name) for thing in state.unkept]
    return list(dict.fromkeys((sharing.group(each) | {each}) & there for each in unkept if each in there))


def _one_by_one(groups: Sequence[_Group], line: Line, around: Around) -> Rebuild:
    done, refused = list[_Group](), dict[str, str]()
    for group in groups:
        try:
            steps_for([each for other in (*done, group) for each in other], line, around)
            done.append(group)
        except CannotRebuildError as error:
            refused |= _refused(group, error)
    found = _together(done, line, around)
    return Rebuild(names=found.names, steps=found.steps, given=found.given, refused=refused)


def _together(groups: Iterable[_Group], line: Line, around: Around) -> Rebuild:
    roots = sorted(frozenset[Location]().union(*groups))
    steps, given = steps_for(roots, line, around)
    return Rebuild(
        names=tuple(key_of(each) for each in roots),
        steps=tuple(record.number for record in steps),
        given=given,
    )


def _refused(group: _Group, error: CannotRebuildError) -> dict[str, str]:
    return dict.fromkeys(sorted(key_of(each) for each in group), str(error))
