"""What a line of steps tells of the names of its cells, for slices: worked out once, as the line gets longer."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cenote.harness import syntax
from cenote.harness.slice_choice import Around
from cenote.harness.slice_syntax import ReadCells, bodies_of
from cenote_worker.history.step import StepRecord
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.trace import LIBRARIES, Location, StepTrace, hidden, key_of

MAX_CODE: Final = 1_000_000
"""Characters of cells with functions that are read. Parsing takes microseconds for each."""

MAX_GROUPS: Final = 100
"""Of names that one has shared objects with, none of them within another; beyond that they count as one group."""

MAX_COMPANY: Final = 5_000
"""Names of such a group. With more of them no cell is taken apart: jails say what shares objects, in any number."""

DRAWN: Final = frozenset((hidden("random"), hidden("numpy.random")))
"""What every draw of a random number changes."""

FOREIGN: Final = "*"
"""Stands for all names that functions speak of and that have nothing to do with a cell: which these are is all one,
since nothing is known of any of them there.
"""

_FOREIGN: Final = frozenset((FOREIGN,))
_NOTHING: Final[frozenset[str]] = frozenset()

_PROCESS: Final = re.compile(
    r"\b(?:os|sys|environ|putenv|chdir|cwd|locale|warnings|logging|decimal|getcontext|localcontext|options?|set_option"
    r"|reset_option|option_context|rc|rcParams|rc_context|style|seterr|errstate|set_printoptions|printoptions)\b"
)
"""Words of code that changes or reads the state of its process, other than by what it calls there and then."""

_BODIES: Final = re.compile(r"\b(?:def|lambda)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """How what is known of a line differs from what was.

    names: of which something else is. used: names that functions speak of now. everything: no cell that is taken
    apart is sure to be as it was.
    """

    names: frozenset[str]
    used: frozenset[str]
    everything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spoken:
    """What functions speak of, and store into. process: of what changes theirs. room: characters still to be read."""

    used: frozenset[str] = _NOTHING
    stored: frozenset[str] = _NOTHING
    process: bool = False
    room: int = MAX_CODE

    @property
    def readable(self) -> bool:
        return self.room >= 0

    def and_of(self, code: str) -> _Spoken:
        room = self.room - len(code) if len(code) <= syntax.MAX_CODE else -1
        try:
            used, stored = bodies_of(to_python(code)) if room >= 0 else (_NOTHING, _NOTHING)
        except syntax.UnreadCode:  # it has run, whatever it speaks of
            used, stored, room = _NOTHING, _NOTHING, -1
        process = self.process or any(map(_PROCESS.fullmatch, used))
        return _Spoken(used=self.used | used, stored=self.stored | stored, process=process, room=room)


class LineNames:
    """Of the steps of a line, by depth: the first has depth 1. Holds nothing of their results."""

    def __init__(self, cells: ReadCells) -> None:
        self.crowded = False
        """Whether some name has shared objects with so many others that cells which have to do with it are dear."""
        self._boundless = False
        """Whether it is not followed any more what has shared objects."""
        self._cells = cells
        self._traces: list[StepTrace | None] = []
        self._codes: list[str] = []
        self._blind = [0]
        """Depths of steps of which not everything is known."""
        self._spoken = [(0, _Spoken())]
        """From each of these depths on."""
        self._writers: dict[str, list[int]] = {}
        self._shared: list[tuple[int, frozenset[str]]] = []
        """Names that share objects since a depth."""
        self._groups: dict[str, Sequence[frozenset[str]]] = {}
        """The same for each name; groups within others are left out."""

    @property
    def blind(self) -> int:
        """The last of these depths; 0 for none."""
        return self._blind[-1]

    @property
    def readable(self) -> bool:
        """Whether all is known of what functions speak of, and of what has shared objects: it is not too much."""
        return self._spoken[-1][1].readable and not self._boundless

    def grow(self, records: Iterable[StepRecord]) -> News:
        """The line goes on."""
        former, readable, groups = self._spoken[-1][1], self.readable, len(self._shared)
        for record in records:
            self._traces.append(record.trace)
            self._codes.append(record.code)
            if record.kind == "cell" and _BODIES.search(record.code):
                self._spoken.append((len(self._traces), self._spoken[-1][1].and_of(record.code)))
            if record.stays and record.unknown:
                self._blind.append(len(self._traces))
            if record.trace is not None and record.stays:
                self._pass(record.trace)
        return self._news(former, readable, [names for _, names in self._shared[groups:]])

    def until(self, depth: int) -> tuple[LineNames, News]:
        """Of the line up to there."""
        names = LineNames(self._cells)
        names._traces, names._codes = self._traces[:depth], self._codes[:depth]
        names._blind = [at for at in self._blind if at <= depth]
        names._spoken = [(at, spoken) for at, spoken in self._spoken if at <= depth]
        names._writers = {name: at[: bisect_right(at, depth)] for name, at in self._writers.items()}
        groups = [group for at, group in self._shared if at > depth]
        for at, group in self._shared[: len(self._shared) - len(groups)]:
            names._share(at, group)
        return names, names._news(self._spoken[-1][1], self.readable, groups)

    def _news(self, former: _Spoken, readable: bool, groups: Iterable[frozenset[str]]) -> News:
        spoken = self._spoken[-1][1]
        return News(
            names=(spoken.used ^ former.used).union(spoken.stored ^ former.stored, *groups),
            used=spoken.used,
            everything=(self.readable, spoken.process) != (readable, former.process),
        )

    def _pass(self, trace: StepTrace) -> None:
        depth = len(self._traces)
        for name in _names(trace.writes):
            self._writers.setdefault(name, []).append(depth)
        for group in trace.groups:
            names = _names(group) if len(group) > 1 else _NOTHING
            if len(names) > 1 and not any(names <= each for each in self._groups.get(next(iter(names)), ())):
                self._share(depth, names)

    def _share(self, depth: int, names: frozenset[str]) -> None:
        self._shared.append((depth, names))
        while names and not self._boundless:
            names = self._join(names)

    def _join(self, names: frozenset[str]) -> frozenset[str]:
        """Gives what counts as one group instead, with those of a name that has too many; nothing where none has."""
        met = {each for name in names for each in self._groups.get(name, ())}
        outside = {
            each for each in met if not each <= names
        }  # once, and not for each name: groups may be large
        crowd = set[frozenset[str]]()
        for name in names:
            others = [each for each in self._groups.get(name, ()) if each in outside]
            self._groups[name] = (*others, names)
            if len(others) >= MAX_GROUPS:
                crowd.update(others)
        self.crowded = self.crowded or bool(crowd)
        whole = names.union(*crowd) if crowd else _NOTHING
        if len(whole) > MAX_COMPANY:
            self._boundless = True
            self._groups.clear()
        return whole

    def around(self, depth: int) -> tuple[Around, frozenset[str]]:
        """Of the cell there, whose trace is known, and which is taken apart; and the names that it has to do with.

        These are those that it speaks of, reads or writes, and what shares objects with them.
        """
        trace, code = self._traces[depth - 1], self._codes[depth - 1]
        assert trace is not None
        before = {name: self._last_before(depth, name) for name in _names(trace.reads)}
        mentioned = [each.mentioned for each in self._cells.statements(code) or ()]
        groups, names = self._related(_names(trace.writes).union(before, *mentioned))
        spoken = self._spoken[-1][1]
        foreign = _NOTHING if spoken.used <= names else _FOREIGN
        around = Around(
            before={name: self._type_at(at, name) for name, at in before.items()},
            after={key_of(each): kind.type for each, kind in trace.kinds.items()},
            plain=frozenset(name for name, at in before.items() if self._is_plain(at, name)),
            used=(spoken.used & names) | foreign,
            stored=spoken.stored & names,
            groups=groups,
            mutated=_names(trace.mutated),
            outside=self._is_outside(code, trace),
        )
        return around, names

    def _related(self, names: frozenset[str]) -> tuple[Sequence[frozenset[str]], frozenset[str]]:
        """What connects these names with others, directly or through further ones; and all of them together."""
        found: dict[frozenset[str], None] = {}
        waiting = [*names]
        while waiting:
            for group in self._groups.get(waiting.pop(), ()):
                if group not in found:
                    found[group] = None
                    waiting += group
        return tuple(found), names.union(*found)

    def _is_outside(self, code: str, trace: StepTrace) -> bool:
        """Whether one statement may have left there, besides names, what another has read.

        What was changed and put back shows as read only. Some states of the process count as read by every step.
        """
        read = trace.reads.keys() - {LIBRARIES}  # each step has read which there are
        drawn = any(each.startswith(("file:", "module:")) for each in read) or not DRAWN.isdisjoint(read)
        spoken = self._spoken[-1][1].process or bool(_PROCESS.search(code))
        return drawn or spoken or not all(each.startswith("name:") for each in trace.writes)

    def _last_before(self, depth: int, name: str) -> int:
        writers = self._writers.get(name, [])
        index = bisect_left(writers, depth)
        return writers[index - 1] if index else 0

    def _type_at(self, depth: int, name: str) -> str:
        trace = self._traces[depth - 1] if depth else None
        kind = trace.kinds.get(Location(f"name:{name}")) if trace is not None else None
        return kind.type if kind is not None else ""

    def _is_plain(self, depth: int, name: str) -> bool:
        if self._type_at(depth, name) != "function":
            return False
        code = f"{self._codes[depth - 1]}\npass"  # a cell of one statement is read, too
        binding = [each for each in self._cells.statements(code) or () if name in each.bound]
        return len(binding) == 1 and binding[0].is_plain_function


def _names(locations: Iterable[Location]) -> frozenset[str]:
    return frozenset([each[5:] for each in locations if each.startswith("name:")])
