"""What a line of steps tells of the names of its cells, for slices: worked out once, as the line gets longer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cenote.harness.slice_choice import Around
from cenote.harness.slice_syntax import ReadCells, bodies_of
from cenote_worker.history.step import StepRecord
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.trace import LIBRARIES, Location, StepTrace, hidden, key_of

MAX_CODE: Final = 1_000_000
"""Characters of cells with functions that are read. Parsing takes a microsecond for each."""

MAX_GROUPS: Final = 100
"""Of names that one has shared objects with, none of them within another."""

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
    """What a longer line means for what is around its earlier cells: something other for those that have to do with
    one of these names. foreign: for those without FOREIGN too. everything: for all.
    """

    names: frozenset[str]
    foreign: bool
    everything: bool


class LineNames:
    """Of the steps of a line, by depth: the first has depth 1. Holds nothing of their results."""

    def __init__(self, cells: ReadCells) -> None:
        self.blind = 0
        """The last depth of a step of which not everything is known."""
        self.crowded = False
        """Whether some name has shared objects with so many others that the cells which have to do with it are dear."""
        self._cells = cells
        self._traces: list[StepTrace | None] = []
        self._codes: list[str] = []
        self._room = MAX_CODE
        self._used = frozenset[str]()
        self._stored = frozenset[str]()
        self._uses_process = False
        self._writers: dict[str, list[int]] = {}
        self._groups: dict[str, Sequence[frozenset[str]]] = {}
        """What each name has ever shared objects with; groups within others are left out."""

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def readable(self) -> bool:
        """Whether all is known of what functions speak of: there are not too many."""
        return self._room >= 0

    def grow(self, records: Iterable[StepRecord]) -> News:
        """The line goes on."""
        used, stored, grouped = self._used, self._stored, set[str]()
        general = (self.readable, self._uses_process)
        for record in records:
            self._traces.append(record.trace)
            self._codes.append(record.code)
            if record.kind == "cell" and _BODIES.search(record.code):
                self._learn(record.code)
            if record.stays and record.unknown:
                self.blind = len(self._traces)
            if record.trace is not None and record.stays:
                grouped |= self._pass(record.trace)
        return News(
            names=(self._used - used) | (self._stored - stored) | grouped,
            foreign=self._used != used,
            everything=general != (self.readable, self._uses_process),
        )

    def _learn(self, code: str) -> None:
        """What functions of a cell speak of."""
        self._room -= len(code)
        if self.readable:
            used, stored = bodies_of(to_python(code))
            self._uses_process = self._uses_process or any(map(_PROCESS.fullmatch, used))
            if not (used <= self._used and stored <= self._stored):
                self._used, self._stored = self._used | used, self._stored | stored

    def _pass(self, trace: StepTrace) -> set[str]:
        """Names that share objects, as they did not before."""
        depth = len(self._traces)
        for name in _names(trace.writes):
            self._writers.setdefault(name, []).append(depth)
        news = set[str]()
        for group in trace.groups:
            names = _names(group) if len(group) > 1 else _NOTHING
            first = next(iter(names), None)
            if first is None or any(names <= each for each in self._groups.get(first, ())):
                continue
            for name in names:
                others = [each for each in self._groups.get(name, ()) if not each < names]
                self._groups[name] = (*others, names)
                self.crowded = self.crowded or len(others) >= MAX_GROUPS
            news |= names
        return news

    def around(self, depth: int) -> tuple[Around, frozenset[str]]:
        """Of the cell there, whose trace is known, and which is taken apart; and the names that it has to do with.

        These are those that it speaks of, reads or writes, and what shares objects with them.
        """
        trace, code = self._traces[depth - 1], self._codes[depth - 1]
        assert trace is not None
        before = {name: self._last_before(depth, name) for name in _names(trace.reads)}
        spoken = [each.mentioned for each in self._cells.statements(code) or ()]
        groups, names = self._related(_names(trace.writes).union(before, *spoken))
        foreign = _NOTHING if self._used <= names else _FOREIGN
        around = Around(
            before={name: self._type_at(at, name) for name, at in before.items()},
            after={key_of(each): kind.type for each, kind in trace.kinds.items()},
            plain=frozenset(name for name, at in before.items() if self._is_plain(at, name)),
            used=(self._used & names) | foreign,
            stored=self._stored & names,
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
        spoken = self._uses_process or bool(_PROCESS.search(code))
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
