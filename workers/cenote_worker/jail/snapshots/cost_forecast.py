"""Which cells would cause the copy of the state before them to be given up, as far as that can be predicted.

A cell that goes through many small objects writes to the reference count of each. The copy made before it is given up
while it runs. Until then the cell has paid for it: for the fork, for the pages copied, and for ending the copy. So
after two consecutive cells that named the same large container and lost their copies, some cells that name it get no
copy. Then one cell gets a copy again as a test. If that copy is lost, twice as many cells go without; if not, none
do.

Arrays that are going to be sorted are first overwritten with themselves. Vector instructions that write with a mask
take a slow path in the processor on a page that has not been written to since a fork, even when the copy has ended.
Sorting ordered data took thirty times as long. A plain write makes the page an ordinary one again.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, Final, TypeGuard

from cenote_proto.v1 import jail_pb2
from cenote_worker.jail.cells.source import Cell
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.libraries.numpy_views import bytes_of
from cenote_worker.jail.snapshots.sweep_extent import index_of, is_frame, reached, reached_in_frame
from cenote_worker.jail.snapshots.sweep_syntax import (
    Ahead,
    CallAhead,
    Rewritten,
    Sorted,
    SweptPart,
    may_sweep,
    nodes,
    sweeps,
)
from cenote_worker.jail.snapshots.worker_snapshots import Snapshots
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content

__builtins__ = BUILTINS

MANY_ITEMS: Final = 100_000
"""Objects in a container. Copying their pages takes a cell some milliseconds; with fewer objects it is not
noticeable.
"""

MOST_CELLS_WITHOUT: Final = 16
"""Consecutive cells without a copy. If one of them crashes, the whole state is lost."""

_LONGEST: Final = 20_000
"""Characters of a cell: searching longer code for names would take longer than it may save."""

_CONTAINERS: Final = frozenset((list, tuple, dict, set, frozenset, deque))
_words = re.compile(r"[^\W\d]\w*").findall


@dataclass(slots=True)
class _Costly:
    """identity: id of the container that the name has. lost: consecutive cells. left: cells that still get no
    copy."""

    identity: int
    lost: int = 0
    left: int = 0


class CostlyNames:
    """The costly names of one namespace."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._costly: dict[str, _Costly] = {}

    @property
    def are_known(self) -> bool:
        """Whether there are any."""
        return bool(self._costly)

    def foresees(self, code: str) -> bool:
        """Whether the copy made before this cell would be given up again. Call it once per cell."""
        foreseen = False
        for name in self._known(code):
            costly = self._costly[name]
            foreseen = foreseen or costly.left > 0
            costly.left = max(costly.left - 1, 0)
        return foreseen

    def ran(self, code: str, *, lost: bool) -> None:
        """Records a cell that had a copy. lost: the copy was given up while the cell ran."""
        if not lost:
            for name in self._known(code):
                del self._costly[name]
        elif len(code) <= _LONGEST:
            for name in dict.fromkeys(_words(code)):
                value = self._namespace.get(name)
                if type(value) in _CONTAINERS and len(value) >= MANY_ITEMS:  # type: ignore[arg-type]
                    self._note(name, id(value))

    def _note(self, name: str, identity: int) -> None:
        costly = self._costly.get(name)
        if costly is None or costly.identity != identity:
            costly = self._costly[name] = _Costly(identity)
        costly.lost += 1
        costly.left = min(1 << (costly.lost - 1), MOST_CELLS_WITHOUT) if costly.lost > 1 else 0

    def _known(self, code: str) -> list[str]:
        """Those of the noted names that occur in a cell and still have the same container."""
        if not self._costly or len(code) > _LONGEST:
            return []
        words = self._costly.keys() & set(_words(code))
        return [name for name in words if id(self._namespace.get(name)) == self._costly[name].identity]


def unshare(array: object) -> None:
    """Writes every byte of the array unchanged: half of the cost remained when one byte of each 64 was written.

    Views are left as they are.
    """
    memory = bytes_of(array)
    if memory is not None:
        memory |= 0


LARGE: Final = 20 * 2**20
"""Bytes: copying this much page by page takes as long as the warden allows a cell
(`warden/snapshot_cost_monitor.py`)."""

_WORTH_A_TURN: Final = 2**14
"""Bytes: a loop that writes less per iteration spends its time on other things than copying pages."""

_DEEPEST: Final = 4
"""Depth of nested calls that are followed."""

Definitions = Callable[[FunctionType], ast.FunctionDef | None]
"""Gives the syntax of a function that a cell has defined, if its source is still there."""

_Names = Mapping[str, str | None]
"""Names of a function's parameters in the namespace; None for an argument that has no name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a cell rewrites of large arrays. size: bytes. ordered: arrays that it sorts."""

    size: int
    ordered: tuple[object, ...]


def sweep_of(
    statements: Sequence[ast.stmt], namespace: Mapping[str, object], definitions: Definitions
) -> Sweep | None:
    """None for a cell that rewrites less than a snapshot is worth."""
    if not may_sweep(statements) or not _is_much(list(namespace.values())):
        return None  # most cells are rejected here
    ahead = list(_resolved(sweeps(statements), namespace, definitions, _DEEPEST))
    whole = [namespace.get(name) for name in {each for each in ahead if isinstance(each, str)}]
    ordered = [namespace.get(name) for name in {each.array for each in ahead if isinstance(each, Sorted)}]
    parts = sum(_reached(each, namespace) for each in ahead if isinstance(each, SweptPart))
    size = _size(whole) + _size(ordered) + parts
    return Sweep(size=size, ordered=tuple(filter(_is_array, ordered))) if size >= LARGE else None


def _reached(part: SweptPart, namespace: Mapping[str, object]) -> int:
    def value_of(name: str) -> object:
        value = namespace.get(part.names[name])
        if type(value) is int or _is_array(value):
            return value
        raise ValueError("anything else may do anything when it is looked at")

    array = namespace.get(part.array)
    if part.by:
        return reached_in_frame(array, part, namespace)
    if not _is_array(array) or array.nbytes < LARGE:
        return 0
    try:
        size = reached(array, index_of(part.index, value_of))
    except ValueError:
        return 0
    if part.times == 1:
        return size
    return min(array.nbytes, size * part.times) if size >= _WORTH_A_TURN else 0


def _resolved(
    ahead: Iterable[Ahead], namespace: Mapping[str, object], definitions: Definitions, deepest: int
) -> Iterator[Rewritten]:
    for each in ahead:
        if not isinstance(each, CallAhead):
            yield each
        elif deepest and (definition := _definition(each, namespace, definitions)) is not None:
            inside = _outside(each, definition)
            yield from _resolved(inside, namespace, definitions, deepest - 1)


def _definition(
    call: CallAhead, namespace: Mapping[str, object], definitions: Definitions
) -> ast.FunctionDef | None:
    if call.function in call.defined:
        return call.defined[call.function]
    function = namespace.get(call.function)
    return definitions(function) if type(function) is FunctionType else None


def _given(call: CallAhead, definition: ast.FunctionDef) -> _Names:
    parameters = [each.arg for each in (*definition.args.posonlyargs, *definition.args.args)]
    return {**dict(zip(parameters, call.arguments, strict=False)), **call.keywords}


def _outside(call: CallAhead, definition: ast.FunctionDef) -> Iterator[Ahead]:
    """What a call does, in the names of its caller. A generator function's call does nothing."""
    given = _given(call, definition)
    found = [node for statement in definition.body for node in nodes(statement)]
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in found):
        return
    local = _local(definition.args, found)

    def name(inside: str) -> str | None:
        return given.get(inside) if inside in local else inside

    for each in sweeps(definition.body):
        if isinstance(each, CallAhead):
            if each.function in each.defined or each.function not in local:
                yield CallAhead(
                    function=each.function,
                    arguments=tuple(value and name(value) for value in each.arguments),
                    keywords={key: value and name(value) for key, value in each.keywords.items()},
                    defined={**call.defined, **each.defined},
                )
        elif isinstance(each, SweptPart):
            outside = {word: name(known) for word, known in each.names.items()}
            names = {word: known for word, known in outside.items() if known is not None}
            if (array := name(each.array)) is not None and len(names) == len(outside):
                yield replace(each, array=array, names=names)
        elif isinstance(each, Sorted):
            if (array := name(each.array)) is not None:
                yield Sorted(array=array)
        elif (variable := name(each)) is not None:
            yield variable


def _local(parts: ast.arguments, found: Sequence[ast.AST]) -> set[str]:
    """A function's local names. found: nodes of its body."""
    own = {each.arg for each in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs)}
    own |= {each.arg for each in (parts.vararg, parts.kwarg) if each is not None}
    own |= {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in found if isinstance(node, ast.FunctionDef)}
    return own - {name for node in found if isinstance(node, ast.Global) for name in node.names}


def _is_much(values: Iterable[object]) -> bool:
    return _size(values) >= LARGE or any(is_frame(value, LARGE) for value in values)


def _size(values: Iterable[object]) -> int:
    """Bytes of those values that are arrays. Memory that two of them share counts twice."""
    return sum(getattr(value, "nbytes", 0) for value in filter(_is_array, list(values)))


def _is_array(value: object) -> TypeGuard[Any]:
    """Whether it is exactly a numpy `ndarray`."""
    numpy = sys.modules.get("numpy")
    return type(value) is getattr(numpy, "ndarray", None)


PATIENCE: Final = 50
"""Milliseconds for which the state after a sweep is not copied unless a request comes: another sweep, as in a loop of
cells, would waste the copy. A client sends its next cell within about two milliseconds.
"""


class Foresight:
    """One worker's forecasts. Cells that are undone on failure are excluded: they need their copy."""

    def __init__(self, kernel: Kernel, copies: Snapshots) -> None:
        self._kernel = kernel
        self._copies = copies
        self._costly = CostlyNames(kernel.namespace)
        self._had_copy = False
        self._patience = 0
        self._swept = False
        """Whether the latest cell was predicted to rewrite large arrays."""

    def patience(self) -> int:
        """Milliseconds to wait for a request before this state is copied. Only once for each state, so that a state
        is copied even if requests, such as for the names of variables, keep coming.
        """
        patience, self._patience = self._patience, 0
        return patience

    def is_costly(self, request: jail_pb2.Request) -> bool:
        """Whether it is such a cell. Call it once per request, before anything is done for it."""
        if not (self._costly.are_known or self._swept) or request.WhichOneof("body") != "execute":
            return False
        if request.execute.atomic:
            return False
        code = _inline_code(request.execute.code)
        return self._costly.foresees(code) or (
            self._swept and self._kernel.is_turn_of(request.author, request.private) and self._sweeps(code)
        )

    def begin_cell(self) -> None:
        """A cell is about to run."""
        self._had_copy, self._swept = self._copies.is_kept, False

    def see(self, cell: Cell) -> None:
        """Gives the copies up if this compiled cell would pay too much for them."""
        sweep = sweep_of(cell.statements, self._kernel.namespace, self._kernel.definition)
        if sweep is None:
            return
        self._swept, self._patience = True, PATIENCE
        self._copies.forgo()
        for array in sweep.ordered:
            unshare(array)

    def end_cell(self, code: str) -> None:
        """Called when the fate of the cell's copy is known."""
        lost = self._copies.is_lost
        if self._had_copy and (lost or self._copies.is_kept):  # nothing is known of one given up beforehand
            self._costly.ran(code, lost=lost)

    def _sweeps(self, code: str) -> bool:
        return (
            sweep_of(_parsed(code, self._kernel), self._kernel.namespace, self._kernel.definition) is not None
        )


def _parsed(code: str, kernel: Kernel) -> Sequence[ast.stmt]:
    """Empty for code that is not Python, and for code that may emit warnings: the cell's own parsing shows them."""
    return () if "\\" in code else kernel.statements(code)


def _inline_code(payload: jail_pb2.Payload) -> str:
    """Empty for code that is too long for a packet."""
    if payload.attached:
        return ""
    return Content.delivered(payload, []).only_part().decode("utf-8", "surrogatepass")
