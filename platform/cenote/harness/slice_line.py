"""What a line of steps tells of the names of its cells, for slices: worked out once, when a cell is taken apart."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from cenote.harness.slice_choice import Around
from cenote.harness.slice_syntax import bodies_of, statements_of
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
    """Of the steps of a line, by depth: the first has depth 1."""

    def __init__(self, line: Sequence[StepRecord]) -> None:
        self._line = line
        with_bodies = [each.code for each in line if each.kind == "cell" and _BODIES.search(each.code)]
        self.readable = sum(map(len, with_bodies)) <= MAX_CODE
        bodies = [bodies_of(to_python(code)) for code in with_bodies] if self.readable else []
        self._used = frozenset[str]().union(*(used for used, _ in bodies))
        self._stored = frozenset[str]().union(*(stored for _, stored in bodies))
        self._writers: dict[str, list[int]] = {}
        self._groups: list[frozenset[str]] = []
        for depth, record in enumerate(line, 1):
            if record.trace is not None and record.stays:
                for name in _names(record.trace.writes):
                    self._writers.setdefault(name, []).append(depth)
                self._groups += [_names(group) for group in record.trace.groups if len(group) > 1]

    def around(self, depth: int) -> Around:
        """Of the cell there, whose trace is known."""
        record = self._line[depth - 1]
        trace = record.trace
        assert trace is not None
        before = {name: self._last_before(depth, name) for name in _names(trace.reads)}
        return Around(
            before={name: self._type_at(at, name) for name, at in before.items()},
            after={key_of(each): kind.type for each, kind in trace.kinds.items()},
            plain=frozenset(name for name, at in before.items() if self._is_plain(at, name)),
            used=self._used,
            stored=self._stored,
            groups=self._groups,
            mutated=_names(trace.mutated),
            outside=self._is_outside(record.code, trace),
        )

    def _is_outside(self, code: str, trace: StepTrace) -> bool:
        """Whether one statement may have left there, besides names, what another has read.

        What was changed and put back shows as read only. Some states of the process count as read by every step.
        """
        read = trace.reads.keys() - {LIBRARIES}  # each step has read which there are
        drawn = any(each in DRAWN or kind_of(each) in ("file", "module") for each in read)
        spoken = bool(_PROCESS.search(code)) or any(map(_PROCESS.fullmatch, self._used))
        return drawn or spoken or any(kind_of(each) != "name" for each in trace.writes)

    def _last_before(self, depth: int, name: str) -> int:
        writers = self._writers.get(name, [])
        index = bisect_left(writers, depth)
        return writers[index - 1] if index else 0

    def _type_at(self, depth: int, name: str) -> str:
        trace = self._line[depth - 1].trace if depth else None
        kind = trace.kinds.get(Location(f"name:{name}")) if trace is not None else None
        return kind.type if kind is not None else ""

    def _is_plain(self, depth: int, name: str) -> bool:
        if self._type_at(depth, name) != "function":
            return False
        code = self._line[depth - 1].code
        binding = [each for each in statements_of(f"{code}\npass") or () if name in each.bound]
        return len(binding) == 1 and binding[0].is_plain_function


def _names(locations: Iterable[Location]) -> frozenset[str]:
    return frozenset(key_of(each) for each in locations if kind_of(each) == "name")
