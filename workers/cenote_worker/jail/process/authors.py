"""Several authors in one process: what each author has alone, what they share, and notices of each other's
changes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from types import CodeType, ModuleType

from cenote_worker.execution.results import Notice
from cenote_worker.jail.cells.source import Cell
from cenote_worker.jail.process.process_context import ProcessContext
from cenote_worker.jail.rendering.variables import user_names
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


@dataclass(slots=True, kw_only=True)
class AuthorNamespace:
    """One author's module and process state. The module is the common one, or the author's own.

    Each module is named `__main__`, and is `sys.modules["__main__"]` while its author has the turn, so that classes
    can be pickled and `if __name__ == "__main__"` works. futures: compiler flags of `from __future__` imports.
    """

    module: ModuleType
    context: Context
    surroundings: ProcessContext
    futures: int = 0


class AuthorNamespaces:
    """Namespaces by author and by whether the namespace is the author's own; made when first requested.

    The authors trust each other: namespaces prevent accidents. Code that wants to reach another author's names can.
    """

    def __init__(self, module: ModuleType, context: Context) -> None:
        self._begin = ProcessContext.here()
        first = AuthorNamespace(module=module, context=context, surroundings=self._begin)
        self._seats = {("", False): first}
        self._common = module

    def of(self, author: str, private: bool) -> AuthorNamespace:
        seat = self._seats.get((author, private))
        if seat is None:
            module = ModuleType("__main__") if private else self._common
            # An empty context: a copy would share what is in it, such as the decimal context, changed in place.
            seat = AuthorNamespace(module=module, context=Context(), surroundings=self._begin)
            self._seats[author, private] = seat
        return seat

    def private_authors(self) -> list[str]:
        """Authors who have names of their own, besides those that each module has, and the last value."""
        seats = self._seats.items()
        return [author for (author, private), seat in seats if private and _has_own_names(seat.module)]

    def move(self, leaving: AuthorNamespace, coming: AuthorNamespace) -> list[str]:
        """Saves one author's process state and restores another's. Returns notes for the latter."""
        with suppress(Exception):
            # If a cell has broken `os` or `sys`, its author gets the state from before.
            leaving.surroundings = ProcessContext.here()
        try:
            note = coming.surroundings.restore(self._begin.directory or "/")
        except OSError as error:
            note = f"the working directory cannot be put back: {error.strerror}"
        return [note] if note else []


def _has_own_names(module: ModuleType) -> bool:
    names = map(str, list(vars(module)))
    return any(name != "_" and not (name[:2] == name[-2:] == "__") for name in names)


_SHOWN = 50


class Shared:
    """Names that all authors of this runtime see: `shared.df = ...`, `shared.df`, `del shared.df`."""

    def __init__(self, namespace: dict[str, object]) -> None:
        # Attributes are the names themselves, as in a module: reading one costs what any attribute does.
        self.__dict__ = namespace

    def __repr__(self) -> str:
        names = user_names(vars(self))
        more = f", ... {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"<shared names: {', '.join(names[:_SHOWN]) or 'none'}{more}>"


def offer_shared_names(namespace: dict[str, object]) -> None:
    """Adds `shared` as a builtin, so that all code sees it: it is no user's variable, and a user may have the
    name."""
    builtins.shared = Shared(namespace)  # type: ignore[attr-defined]


def shared_names() -> Mapping[str, object]:
    """The contents of `shared`; empty before it is offered, or when a cell has replaced it."""
    shared = vars(builtins).get("shared")
    return vars(shared) if type(shared) is Shared else {}


MAX_NOTICES = 20
"""Notices given at once; the rest are given with the next cells."""

_PLAIN = frozenset((int, float, complex, str, bytes))
_PLAIN_SIZE = 1_000
"""Bytes. A smaller plain value is kept until the next look: a new one at its address would pass for the old one."""


RebindingsAccount = tuple[int, list[tuple[str, int, str, int, bool]], dict[str, list[str]], dict[str, int]]
"""As plain values: the number of the last change; the latest change of each name; the names that each author knows;
the number up to which each author got notices."""

Turn = tuple[str, bool]
"""An author, and whether in the author's own namespace."""

TurnState = tuple[int, Turn, Turn, list[str], RebindingsAccount]
"""See `Kernel.turn_state`."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The latest rebinding of a name. number: a count over all names."""

    number: int
    author: str
    step: int
    deleted: bool


class Rebindings:
    """Compares bindings by identity after each turn: a value that was changed in place is not noticed.

    A turn costs time per name (0.2 µs each), so this object is only made when a second author comes.
    """

    def __init__(self, namespace: dict[str, object]) -> None:
        """Made before the second author's first turn: all existing names are the first author's."""
        self._namespace = namespace
        self._ids: dict[str, int] = {}
        self._kept: dict[str, object] = {}
        self._changes: dict[str, _Change] = {}
        """The latest change of each name, in chronological order."""
        self._number = 0
        self._rebound()
        self._known = {"": set(self._ids)}
        """The names that each author has bound or used."""
        self._told = {"": 0}
        """The number of the last change that each author may have got a notice of."""

    def news(self, author: str) -> tuple[Notice, ...]:
        """Other authors' changes to names that this author has bound or used, each given once, the earliest first."""
        known, told = self._known.get(author, set()), self._told.get(author, 0)
        news: list[tuple[str, _Change]] = []
        for name, change in reversed(self._changes.items()):
            if change.number <= told:
                break
            if change.author != author and name in known:
                news.append((name, change))
        news.reverse()
        self._told[author] = self._number if len(news) <= MAX_NOTICES else news[MAX_NOTICES - 1][1].number
        return tuple(
            Notice(name=name, author=change.author, step=change.step, deleted=change.deleted)
            for name, change in news[:MAX_NOTICES]
        )

    def settle(self, author: str, step: int, used: Iterable[str] = ()) -> None:
        """Ends the author's turn. step: 0 when it was no cell. used: names that occur in its code."""
        known = self._known.setdefault(author, set())
        for name in self._rebound():
            self._number += 1
            self._changes.pop(name, None)
            self._changes[name] = _Change(self._number, author, step, name not in self._ids)
            known.add(name)
        known.update(name for name in used if name in self._ids)

    @property
    def held(self) -> Mapping[str, object]:
        """Values that this object refers to."""
        return self._kept

    def account(self) -> RebindingsAccount:
        """What this object knows, apart from the bindings themselves."""
        changes = [
            (name, each.number, each.author, each.step, each.deleted) for name, each in self._changes.items()
        ]
        known = {author: sorted(names) for author, names in self._known.items()}
        return self._number, changes, known, dict(self._told)

    def restore(self, account: RebindingsAccount) -> None:
        """Replaces what this object knows; the present bindings count as known."""
        self._number, changes, known, told = account
        self._changes = {
            name: _Change(number, author, step, deleted) for name, number, author, step, deleted in changes
        }
        self._known = {author: set(names) for author, names in known.items()}
        self._told = dict(told)
        self._rebound()

    def _rebound(self) -> list[str]:
        """Names whose binding has changed or gone since the last call."""
        now = self._namespace.copy()
        # Hash and equality of keys of other types would run the cell's code.
        if any(kind is not str for kind in set(map(type, now))):
            now = {name: value for name, value in now.items() if type(name) is str}
        before, self._ids = self._ids, dict(zip(now, map(id, now.values()), strict=True))
        changed = [name for name, identity in self._ids.items() if before.get(name) != identity]
        changed += [name for name in before if name not in self._ids]
        for name in changed:
            self._keep(name, now.get(name))
        return [name for name in changed if name[:1] != "_"]

    def _keep(self, name: str, value: object) -> None:
        if type(value) in _PLAIN and type(value).__sizeof__(value) < _PLAIN_SIZE:
            self._kept[name] = value
        else:
            self._kept.pop(name, None)


def names_in(cell: Cell) -> set[str]:
    """The names that occur in a cell's code, attributes and the bodies of its functions included."""
    names: set[str] = set()
    parts = [part for part in (cell.body, cell.last) if part is not None]
    while parts:
        code = parts.pop()
        names.update(code.co_names)
        parts.extend(constant for constant in code.co_consts if type(constant) is CodeType)
    return names
