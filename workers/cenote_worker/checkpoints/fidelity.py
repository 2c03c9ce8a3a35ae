"""What a restore will give back, said before it starts."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.printable import printable
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.state import NOTHING_REBUILT, Rebuild, State, Unkept
from cenote_worker.execution.state_index import Indexed, from_message
from cenote_worker.execution.trace import key_of
from cenote_worker.execution.trace import name as location_of

_LONGEST: Final = 300
"""Characters of a name or a reason."""

MAX_MODULES: Final = 1_000
"""Modules whose versions are compared: each takes a tenth of a millisecond. Busy notebooks use some hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How faithful a restore of one checkpoint will be.

    exact: variables that come back as they were, without names of Python's own. rebuilt: those that come back by
    running `steps` again, with their recorded host calls: what cannot be stored, and what shares objects with it.
    differing: what will not be as it was, with the reasons: variables, settings, what was set in libraries, files.
    uncompared: variables that cannot be compared with what they were, with the reasons.
    unkept: what was not stored and does not come back, with the reasons and the step that made it. unoffered: names
    of functions and objects of the client that are not given again. unfit: why what was stored cannot be read here.
    notes: what differs and may matter, such as a package's version.

    All of that is by value, which any jail can be given. image: why a restore here will not continue the process
    itself, from an image of it; empty if it will, as long as the environment is the one that it had and the same
    functions are given. Then all is exact, but for what is in `image_lacks`, a line each. See `exact_here`.
    `str()` of it is for people.
    """

    number: int
    step: int
    exact: tuple[str, ...]
    rebuilt: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    differing: tuple[Unkept, ...] = ()
    uncompared: tuple[Unkept, ...] = ()
    unkept: tuple[Unkept, ...] = ()
    unoffered: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    image: str = "images of processes were not looked at"
    image_lacks: tuple[str, ...] = ()

    @property
    def exact_here(self) -> bool:
        """Whether a restore here continues the process itself, in the environment that it had."""
        return not self.image

    @property
    def may_be_imaged(self) -> bool:
        """Whether an image of the process may have all that would be missing by value."""
        return not self.unfit and not self.unoffered

    @property
    def complete(self) -> bool:
        """Whether nothing will be missing by value."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """Each thing that will be missing by value, with the reason."""
        lost = (
            f"{thing.name}: {thing.reason}" + (f"; step {thing.step} made it" if thing.step else "")
            for thing in self.unkept
        )
        offered = (
            f"{printable(name)}: a function or object of the client; give it again" for name in self.unoffered
        )
        return (*self.unfit, *lost, *offered)

    def __str__(self) -> str:
        lines = [f"checkpoint {self.number}, state after step {self.step}: {len(self.exact)} variables exact"]
        if self.rebuilt:
            steps = ", ".join(map(str, self.steps))
            lines.append(f"rebuilt by running again step {steps}: {', '.join(self.rebuilt)}")
        lines += [f"missing: {text}" for text in self.missing]
        lines += [f"differing: {thing.name}: {thing.reason}" for thing in self.differing]
        lines += [f"not compared: {thing.name}: {thing.reason}" for thing in self.uncompared]
        lines += [f"note: {text}" for text in self.notes]
        if self.exact_here:
            lines.append("here, in the environment that it had: exact, from an image of the process")
            lines += [f"missing there: {text}" for text in self.image_lacks]
        else:
            lines.append(f"by value here, too: {self.image}")
        return "\n".join(lines)


def fidelity(manifest: Manifest, offered: Iterable[str]) -> Fidelity:
    """What will come back. offered: names of the client's functions and objects that are given again."""
    return _fidelity(manifest.number, manifest.state, offered, manifest.rebuild)


def missing_of(state: State, rebuild: Rebuild = NOTHING_REBUILT) -> tuple[str, ...]:
    """Each thing of a state that a fork will not have, except the client's functions."""
    return _fidelity(0, state, state.message.hosts, rebuild).missing


def _fidelity(number: int, state: State, offered: Iterable[str], rebuild: Rebuild) -> Fidelity:
    message = state.message
    missing_hosts = tuple(sorted(set(message.hosts) - set(offered)))
    index = [each for each in map(from_message, message.index) if key_of(each.location) not in rebuild.names]
    differing = [each for each in index if each.foretold]
    uncompared = [each for each in index if not each.foretold and (each.unseen or each.untried)]
    inexact = {each.location for each in (*differing, *uncompared)}
    exact = [
        variable
        for group in state.groups
        for variable in group.names
        if not variable.startswith("__") and location_of(variable) not in inexact
    ]
    return Fidelity(
        number=number,
        step=message.step,
        exact=tuple(variable for variable in exact if variable not in rebuild.names),
        differing=(*(_told(each, each.foretold) for each in differing), *map(_not_set, message.unset)),
        uncompared=tuple(_told(each, each.unseen or each.untried) for each in uncompared),
        rebuilt=rebuild.names,
        steps=rebuild.steps,
        unkept=tuple(_explained(thing, rebuild) for thing in state.unkept if thing.name not in rebuild.names),
        unoffered=missing_hosts,
        unfit=_unfit(message.python, message.machine),
        notes=_versions((module.name, module.version) for module in message.modules if module.version),
    )


def _told(indexed: Indexed, reason: str) -> Unkept:
    return Unkept(printable(indexed.spoken), printable(reason), 0)


def _not_set(thing: checkpoint_pb2.UnkeptThing) -> Unkept:
    name, reason = (printable(text[:_LONGEST]) for text in (thing.name, thing.reason))
    return Unkept(name, reason, 0)


def _explained(thing: Unkept, rebuild: Rebuild) -> Unkept:
    """The same, with the reason why no steps can make it again."""
    why = rebuild.refused.get(thing.name)
    return replace(thing, reason=f"{thing.reason}; it cannot be made again: {why}") if why else thing


def _unfit(python: str, machine: str) -> tuple[str, ...]:
    """Why it cannot be read here: functions are code of one Python version, arrays have one machine's byte order."""
    here = platform.python_version()
    reasons = []
    if python.split(".")[:2] != here.split(".")[:2]:
        reasons.append(f"it was made with Python {printable(python)}, and functions cannot be read by {here}")
    if machine != platform.machine():
        reasons.append(f"it was made on {printable(machine)}, this is {platform.machine()}")
    return tuple(reasons)


def _versions(modules: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Differences between what was in use and what is installed here."""
    from importlib import metadata  # 20 ms, and embedded runtimes that store nothing never need it

    notes = []
    for name, version in islice(modules, MAX_MODULES):
        if not name.isidentifier():
            continue  # the jail names the modules in use, and may name anything
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a module of the working directory, or a package under another name
        if here != version:
            notes.append(f"{name} {here} is here, {printable(version)} was in use")
    return tuple(notes)
