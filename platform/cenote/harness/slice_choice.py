"""Which statements of a cell a value can have come from. What cannot be told apart stays together.

Backwards through the cell, as Weiser's slices are made, with what is wanted of the state in hand. A statement counts
if it may bind a wanted name; or if it may change what a wanted name holds, which it may unless it only reads: what it
speaks of, whatever shares objects with that, and whatever code of the user speaks of, which it may call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cenote.harness.slice_quiet import ATOMS
from cenote.harness.slice_syntax import Statement

OUTSIDE: Final = ""
"""Stands for files, hidden state and modules, which no name leads to."""

_NOTHING: Final[frozenset[str]] = frozenset()

_FIXED: Final = frozenset(("type", "function", "builtin_function_or_method", "numpy.ufunc"))
"""Types of what modules export, taken to be never changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
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

    def __init__(self, statements: Sequence[Statement], around: Around) -> None:
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
