"""What a line of steps tells of the names of its cells, for slices: worked out once, as the line gets longer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from cenote.harness.slice_choice import Around
from cenote.harness.slice_syntax import ReadCells, bodies_of
from cenote_worker.history.step import StepRecord
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.trace import LIBRARIES, Location, StepTrace, hidden, key_of, kind_of

MAX_CODE: Final = 1_000_000
"""Characters of cells with functions that are read. Parsing takes a microsecond for each."""

DRAWN: Final = frozenset((hidden("random"), hidden("numpy.random")))
"""What every draw of a random number changes."""

_PROCESS: Final = re.compile(
    r"\b(?:os|sys|environ|putenv|chdir|cwd|locale|warnings|logging|decimal|getcontext|localcontext|options?|set_option"
    r"|reset_option|option_context|rc|rcParams|rc_context|style|seterr|errstate|set_printoptions|printoptions)\b"
)
"""Words of code that changes or reads the state of its process, other than by what it calls there and then."""

_BODIES: Final = re.compile(r"\b(?:def|lambda)\b")


class LineNames:
    """Of the steps of a line, by depth: the first has depth 1. Holds nothing of their results."""

    def __init__(self, cells: ReadCells) -> None:
        self.blind = 0
        """The last depth of a step of which not everything is known."""
        self._cells = cells
        self._traces: list[StepTrace | None] = []
        self._codes: list[str] = []
        self._room = MAX_CODE
        self._used = frozenset[str]()
        self._stored = frozenset[str]()
        self._uses_process = False
        self._writers: dict[str, list[int]] = {}
        self._groups: dict[str, set[frozenset[str]]] = {}
        """What each name has ever shared objects with."""

    @property
    def readable(self) -> bool:
        """Whether all is known of what functions speak of: there are not too many."""
        return self._room >= 0

    def grow(self, records: Iterable[StepRecord]) -> bool:
        """The line goes on. Says whether that matters for what is around earlier cells."""
        before = (self.readable, self._used, self._stored, sum(map(len, self._groups.values())))
        for record in records:
            self._traces.append(record.trace)
            self._codes.append(record.code)
            if record.kind == "cell" and _BODIES.search(record.code):
                self._learn(record.code)
            if record.stays and record.unknown:
                self.blind = len(self._traces)
            if record.trace is not None and record.stays:
                self._pass(record.trace)
        return before != (self.readable, self._used, self._stored, sum(map(len, self._groups.values())))

    def _learn(self, code: str) -> None:
        """What functions of a cell speak of."""
        self._room -= len(code)
        if self.readable:
            used, stored = bodies_of(to_python(code))
            self._uses_process = self._uses_process or any(map(_PROCESS.fullmatch, used))
            if not (used <= self._used and stored <= self._stored):
                self._used, self._stored = self._used | used, self._stored | stored

    def _pass(self, trace: StepTrace) -> None:
        depth = len(self._traces)
        for name in _names(trace.writes):
            self._writers.setdefault(name, []).append(depth)
        for group in trace.groups:
            names = _names(group)
            for name in names if len(group) > 1 else ():
                self._groups.setdefault(name, set()).add(names)

    def around(self, depth: int) -> Around:
        """Of the cell there, whose trace is known, and which is taken apart."""
        trace, code = self._traces[depth - 1], self._codes[depth - 1]
        assert trace is not None
        before = {name: self._last_before(depth, name) for name in _names(trace.reads)}
        spoken = frozenset[str]().union(*(each.mentioned for each in self._cells.statements(code) or ()))
        return Around(
            before={name: self._type_at(at, name) for name, at in before.items()},
            after={key_of(each): kind.type for each, kind in trace.kinds.items()},
            plain=frozenset(name for name, at in before.items() if self._is_plain(at, name)),
            used=self._used,
            stored=self._stored,
            groups=self._groups_of({*before, *_names(trace.writes), *spoken, *self._used, *self._stored}),
            mutated=_names(trace.mutated),
            outside=self._is_outside(code, trace),
        )

    def _groups_of(self, names: Iterable[str]) -> Sequence[frozenset[str]]:
        """Those that connect these names with others, directly or through further ones."""
        found: dict[frozenset[str], None] = {}
        waiting = [*names]
        while waiting:
            for group in self._groups.get(waiting.pop(), ()):
                if group not in found:
                    found[group] = None
                    waiting += group
        return tuple(found)

    def _is_outside(self, code: str, trace: StepTrace) -> bool:
        """Whether one statement may have left there, besides names, what another has read.

        What was changed and put back shows as read only. Some states of the process count as read by every step.
        """
        read = trace.reads.keys() - {LIBRARIES}  # each step has read which there are
        drawn = any(each in DRAWN or kind_of(each) in ("file", "module") for each in read)
        spoken = self._uses_process or bool(_PROCESS.search(code))
        return drawn or spoken or any(kind_of(each) != "name" for each in trace.writes)

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
    return frozenset(key_of(each) for each in locations if kind_of(each) == "name")
