"""Which statements of a line's cells a value can have come from. Statements that cannot be separated stay
together.

What a line of steps tells of the names of its cells is worked out once, as the line gets longer.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cenote.harness.record import cell_syntax
from cenote.harness.slicing.statements import ATOMS, ReadCells, Statement, bodies_of
from cenote_worker.execution.trace import LIBRARIES, Location, StepTrace, hidden, key_of
from cenote_worker.history.step import StepRecord
from cenote_worker.jail.cells.ipython_syntax import to_python

OUTSIDE: Final = ""
"""Stands for files, hidden state and modules, which no name leads to."""

_NOTHING: Final[frozenset[str]] = frozenset()

_FIXED: Final = frozenset(("type", "function", "builtin_function_or_method", "numpy.ufunc"))
"""Types of what modules export, taken to be never changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellContext:
    """What the history tells of the names of one cell.

    before, after: types of values, where they are known. plain: names of functions that hold nothing changeable.
    used: names that functions and methods of the user speak of; stored: that they bind, or store into.
    groups: names that have ever shared objects. mutated: by this cell, in place. outside: it read or wrote
    what is no name: what changes it there and back shows as read only.
    """

    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    groups: Sequence[frozenset[str]] = ()
    mutated: frozenset[str] = frozenset()
    outside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """statements: in their order. wanted: names that have to be there before. deep: more may be, that they reach.
    changed: of the others that were asked about, those that these statements may have changed.
    """

    statements: tuple[Statement, ...]
    wanted: frozenset[str]
    deep: bool
    changed: frozenset[str]


class Chooser:
    """Of one cell."""

    def __init__(self, statements: Sequence[Statement], around: CellContext) -> None:
        self._statements = statements
        self._around = around
        self._bound = frozenset[str]().union(*(each.bound for each in statements))
        self._once = dict(_bound_once(statements))
        self._inert: dict[str, bool] = {}
        quiet = [self._is_quiet(each) for each in statements]
        self.quiet = all(quiet)
        """No statement changes anything in place: what functions speak of is all one, unless this cell does, too."""
        self._kin = {} if self.quiet else self._related()
        common = _NOTHING if self.quiet else self._family(self._everywhere())
        self._touched = [
            _NOTHING if still else common | self._family(each.mentioned)
            for still, each in zip(quiet, statements, strict=True)
        ]
        """Of each statement, families of what it may change in place: of none if it is quiet."""

    def choose(self, made: Collection[str], others: Iterable[str] = ()) -> Choice | None:
        """None when nothing says which statement wrote what was made.

        made: names that are wanted and different after the cell, and OUTSIDE for what is none. others: see Choice.
        What is among these and wanted too is to be taken for made if it may have been changed: a statement that was
        left out may have put it back.
        """
        needed, deep = set(made), False
        chosen: list[Statement] = []
        bound, changed = set[str](), set[str]()
        for statement, touched in zip(reversed(self._statements), reversed(self._touched), strict=True):
            if statement.bound.isdisjoint(needed) and not (touched and self._meets(needed, touched)):
                continue
            chosen.append(statement)
            bound |= statement.bound
            changed |= touched
            if not statement.imports:  # of one module several statements may import parts
                needed -= statement.sure
            needed |= statement.mentioned | (touched & {OUTSIDE})
            if not statement.is_atomic(self._type_of):
                deep = True
                needed |= self._around.used
        if not all(name in bound or self._meets((name,), changed) for name in made):
            return None
        return Choice(
            statements=tuple(chosen[::-1]),
            wanted=frozenset(needed - {OUTSIDE}),
            deep=deep,
            changed=frozenset([each for each in others if each in bound or self._meets((each,), changed)]),
        )

    def _related(self) -> Mapping[str, str]:
        """See `_kin`: of what the cell speaks of together, and what has ever shared objects."""
        groups = (*(each.mentioned for each in self._statements), *self._around.groups)
        return _kin([[name for name in group if not self._is_inert(name)] for group in groups])

    def _is_quiet(self, statement: Statement) -> bool:
        return statement.is_quiet(self._type_of) and not (statement.imports and self._around.outside)

    def _everywhere(self) -> frozenset[str]:
        """What any statement may change that is not quiet, besides what it speaks of."""
        names = self._around.used | self._around.stored
        return names | {OUTSIDE} if self._around.outside else names

    def _family(self, names: Iterable[str]) -> frozenset[str]:
        """Of each name that can be changed, what stands for all that may share objects with it."""
        return frozenset([self._kin.get(name, name) for name in names if not self._is_inert(name)])

    def _meets(self, names: Iterable[str], families: Collection[str]) -> bool:
        """Whether any of the names belongs to one of them."""
        return any(self._kin.get(each, each) in families and not self._is_inert(each) for each in names)

    def _type_of(self, name: str) -> str:
        if name not in self._bound:
            return self._around.before.get(name, "")
        return self._around.after.get(name, "") if name in self._once else ""

    def _is_inert(self, name: str) -> bool:
        if name not in self._inert:
            self._inert[name] = self._cannot_change(name)
        return self._inert[name]

    def _cannot_change(self, name: str) -> bool:
        around = self._around
        if name in around.stored or name in around.mutated:
            return False
        kind, binding = self._type_of(name), self._once.get(name)
        if kind in ATOMS or kind in ("module", "builtin_function_or_method"):
            return True
        if binding is None:
            return name in around.plain and name not in self._bound
        return binding.is_plain_function or (binding.imports and kind in _FIXED)


def _bound_once(statements: Sequence[Statement]) -> Iterable[tuple[str, Statement]]:
    """Names that one statement binds in any case, and that none speaks of before it."""
    met, seen = set[str](), set[str]()
    found: dict[str, Statement] = {}
    for statement in statements:
        for name in statement.bound & seen:
            found.pop(name, None)
        found |= dict.fromkeys(statement.sure - met - seen, statement)
        met |= statement.mentioned
        seen |= statement.bound
    return found.items()


def _kin(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """One name for all that are connected: union-find."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while (next_ := above.setdefault(name, name)) != name:
            above[name] = above[next_]
            name = next_
        return name

    for group in groups:
        for name in group:
            above[top(name)] = top(group[0])
    return {name: top(name) for name in list(above)}


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

_PROCESS: Final = re.compile(
    r"\b(?:os|sys|environ|putenv|chdir|cwd|locale|warnings|logging|decimal|getcontext|localcontext|options?|set_option"
    r"|reset_option|option_context|rc|rcParams|rc_context|style|seterr|errstate|set_printoptions|printoptions)\b"
)
"""Words of code that changes or reads the state of its process, other than by what it calls there and then."""

_BODIES: Final = re.compile(r"\b(?:def|lambda)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChanges:
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
        room = self.room - len(code) if len(code) <= cell_syntax.MAX_CODE else -1
        try:
            used, stored = bodies_of(to_python(code)) if room >= 0 else (_NOTHING, _NOTHING)
        except cell_syntax.UnreadCode:  # it has run, whatever it speaks of
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

    def grow(self, records: Iterable[StepRecord]) -> LineChanges:
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

    def until(self, depth: int) -> tuple[LineNames, LineChanges]:
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

    def _news(self, former: _Spoken, readable: bool, groups: Iterable[frozenset[str]]) -> LineChanges:
        spoken = self._spoken[-1][1]
        return LineChanges(
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

    def around(self, depth: int) -> tuple[CellContext, frozenset[str]]:
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
        around = CellContext(
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
