"""Checks a share of applied patches against a full run of the patched history. Decides; runs nothing itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from cenote.harness.equality import same, same_text
from cenote_security.errors import CenoteError, RejectedError, UsageError
from cenote_worker.history.step import StepRecord

AuditOutcome = Literal["same", "different", "unsteady", "not checked"]

_CELL: Final = re.compile(r"<cell \d+>")
"""Files of code in messages: a step that stands has the number that it had when it ran."""


_Part = tuple[Literal["name", "file", "step"], str | int]
"""A variable, a path, or the place of a step in its history."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unlike:
    """What one state has otherwise than another. names: variables. files: paths. steps: numbers of those that show,
    raise or call something else. All in order: of the alphabet, and of the history.
    """

    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.files or self.steps)

    def __str__(self) -> str:
        parts = (("steps", self.steps), ("variables", self.names), ("files", self.files))
        return "; ".join(f"{what} {', '.join(map(str, which))}" for what, which in parts if which)


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What came of running a patched history in full, in a second runtime.

    outcome: same; different, which is the alarm; unsteady: what differs also differs between two full runs;
    not checked: it cannot be run in full. reason: one sentence, empty when it is the same. unlike: what differs.
    described: variables of which type, shape and description were compared, since such values stay in their jail.
    """

    outcome: AuditOutcome
    reason: str = ""
    unlike: Unlike = field(default_factory=Unlike)
    described: tuple[str, ...] = ()


class UnsoundError(CenoteError):
    """The alarm of the auditor: a patched state is not that of a full run. The patch stays applied.

    audit: what differs. patch: its id. rerun, reused: the steps that the patch had run again, and that it had not.
    """

    def __init__(self, audit: Audit, patch: str, rerun: tuple[int, ...], reused: tuple[int, ...]) -> None:
        super().__init__(audit, patch, rerun, reused)
        self.audit = audit
        self.patch = patch
        self.rerun = rerun
        self.reused = reused

    def __str__(self) -> str:
        return (
            f"{self.audit.reason} (patch {self.patch}; run again: steps {_listed(self.rerun)}; not run again: "
            f"{_listed(self.reused)}). Take it back with `state.revert({self.patch!r})`, or `reset` the runtime and "
            "run the patched history anew; and report the history: this is a defect of Cenote"
        )


class Told(Protocol):
    """A state, and the history that led to it, as they can be looked at."""

    @property
    def records(self) -> Sequence[StepRecord]:
        """All steps. Those of a full run end before one that would have called outside what was not recorded."""

    def described(self) -> Mapping[str, str]:
        """Its variables, in the order of the namespace: type, shape and description of each, as one text."""

    def value(self, name: str) -> object:
        """Of a variable, rebuilt. Raises RejectedError, UsageError for what stays in its jail."""

    def files(self) -> Mapping[str, bytes]:
        """Paths in the working directory, with a digest of the content of each."""


class Audited(Told, Protocol):
    """A runtime whose history can be run in full beside it."""

    def obstacle(self) -> str:
        """Why it cannot be, in one sentence; empty if nothing is known to be in the way."""

    def in_full(self) -> AbstractContextManager[Told]:
        """A fresh runtime in which the same history has run, with recorded answers for all that it calls outside.

        Raises CenoteError where none can be had, or it was lost.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Auditor:
    """share: of patches to check, from 0 to 1. chance: a number from 0 to below 1, another one each time."""

    share: float
    chance: Callable[[], float]

    def audit(self, audited: Audited) -> Audit | None:
        """None for a patch that the draw has passed over. What keeps it from being checked is in the result."""
        if self.chance() >= self.share:
            return None
        if reason := audited.obstacle():
            return Audit(outcome="not checked", reason=reason)
        try:
            return _checked(audited)
        except CenoteError as error:
            return Audit(outcome="not checked", reason=f"the full run did not come to its end: {error}")


def _checked(audited: Audited) -> Audit:
    with audited.in_full() as full:
        first = _Comparison(audited, full)
        if not first.different:
            return Audit(outcome="same", described=first.described)
        with audited.in_full() as again:
            second = _Comparison(full, again)
            steady = frozenset() if second.early else first.different - second.different
    unlike = _unlike(steady or first.different, audited.records)
    outcome: AuditOutcome = "different" if steady else "unsteady"
    told = "a full run of the patched history gives something else" if steady else "two full runs differ"
    reason = f"{told}: {unlike}{_chance(audited.records)}"
    return Audit(outcome=outcome, reason=reason, unlike=unlike, described=first.described)


class _Comparison:
    """Of two states with their histories. different: where they are not the same. described: see Audit.

    early: one of the histories ended before the other.
    """

    def __init__(self, one: Told, other: Told) -> None:
        self._one = one
        self._other = other
        self._described: list[str] = []
        ends = min(len(one.records), len(other.records))
        self.early = len(one.records) != len(other.records)
        found = set(self._steps())
        if self.early:  # behind its end nothing can be said of the shorter one
            found.add(("step", ends))
        else:
            found.update(self._names(), self._files())
        self.different: frozenset[_Part] = frozenset(found)
        self.described = tuple(self._described)

    def _steps(self) -> Iterator[_Part]:
        pairs = zip(self._one.records, self._other.records, strict=False)
        for place, (one, other) in enumerate(pairs):
            if not _same_outputs(one, other):
                yield "step", place

    def _names(self) -> Iterator[_Part]:
        one, other = self._one.described(), self._other.described()
        for name in sorted(one.keys() | other.keys()):
            if name not in one or name not in other or not self._same(name, one[name], other[name]):
                yield "name", name
        if one.keys() == other.keys():  # programs can ask in which order they are
            yield from (("name", mine) for mine, others in zip(one, other, strict=True) if mine != others)

    def _files(self) -> Iterator[_Part]:
        one, other = self._one.files(), self._other.files()
        yield from (("file", path) for path in one.keys() | other.keys() if one.get(path) != other.get(path))

    def _same(self, name: str, one: str, other: str) -> bool:
        try:
            return same(self._one.value(name), self._other.value(name))
        except (RejectedError, UsageError):
            self._described.append(name)
            return same_text(one, other)


def _same_outputs(one: StepRecord, other: StepRecord) -> bool:
    mine, others = _shown(one), _shown(other)
    if one.status != other.status or len(mine) != len(others):
        return False
    return all(same_text(left, right) for left, right in zip(mine, others, strict=True))


def _shown(record: StepRecord) -> tuple[str, ...]:
    """Of figures and tables their kinds, and what they are as text: libraries put ids into HTML, and into SVG."""
    error = (record.error.type, record.error.message) if record.error is not None else ("", "")
    rich = (f"{sorted(bundle)} {bundle.get('text/plain', '')!r}" for bundle in record.outputs)
    texts = (record.stdout, record.stderr, record.value or "", *error, *rich)
    return tuple(_CELL.sub("<cell>", text) for text in texts)


def _unlike(parts: Collection[_Part], records: Sequence[StepRecord]) -> Unlike:
    names = sorted(str(key) for kind, key in parts if kind == "name")
    files = sorted(str(key) for kind, key in parts if kind == "file")
    places = sorted(int(key) for kind, key in parts if kind == "step")
    return Unlike(
        names=tuple(names), files=tuple(files), steps=tuple(records[place].number for place in places)
    )


def _chance(records: Sequence[StepRecord]) -> str:
    """Which steps may have had another result by themselves: two full runs may agree by chance."""
    drawn = [record.number for record in records if record.trace is not None and record.trace.unrepeatable]
    return f"; steps {_listed(tuple(drawn))} may give something else each time" if drawn else ""


def _listed(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps)) or "none"
