"""Partly consumed iterators and generators as descriptions: what they hold, and their position.

No Python API gives that without advancing them, or a warning. A C iterator's state is in its own memory: addresses of
objects, which the garbage collector knows, and plain numbers. The same holds for the frame of a generator: its
variables, and the value stack of its loops and calls. Each word is described as the object at that address, or as the
number. If one is neither, nothing is known.
"""

from __future__ import annotations

import ctypes
import itertools
from operator import is_
from types import FunctionType, GeneratorType
from typing import Any, Final

from cenote_worker.execution.trace import module
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph
from cenote_worker.jail.tracking.descriptions.objects import NOWHERE, code_digest, held_by, home_of, mourners
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_string_at = ctypes.string_at
_WORD: Final = ctypes.sizeof(ctypes.c_size_t)
_HEAD: Final = object.__basicsize__
"""Bytes of an object's header: its reference count and its type."""

_FAR: Final = 1 << 40
"""Numbers from here on may be addresses. Those down to the same distance below zero are not."""

_NEGATIVE: Final = (1 << 8 * _WORD) - _FAR
_NOTHING: Final = 0
_DI_POS: Final = 2
"""The word of a dictionary iterator that holds its position."""


def _iterator(graph: ObjectGraph, value: object) -> object:
    words = _words(id(value) + _HEAD, type(value).__basicsize__ - _HEAD)
    held = {id(each): each for each in held_by(value)}
    if any(_FAR <= word < _NEGATIVE and word not in held for word in words):
        return graph.follow(value)
    _stays(graph, value)
    return [(graph.token(held[word]),) if word in held else word for word in words]


def _of_sequences(graph: ObjectGraph, value: Any) -> object:
    """`zip` and `enumerate`: without the tuple that they reuse."""
    _, *told = value.__reduce__()
    _stays(graph, value)
    return [graph.tokens(each) if type(each) is tuple else each for each in told]


def _of_longest(graph: ObjectGraph, value: object) -> object:
    """`zip_longest`: an iterator that has ended is a null pointer in its tuple, which no Python code may read."""
    count, active, table, _, fill = _words(id(value) + _HEAD, 5 * _WORD)
    held = {id(each): each for each in held_by(value)}
    if table not in held or fill not in held:
        return graph.follow(value)
    iterators = {id(each): each for each in held_by(held[table])}
    places = _words(table + tuple.__basicsize__, count * _WORD)
    if any(place and place not in iterators for place in places):
        return graph.follow(value)
    _stays(graph, value)
    told = [(graph.token(iterators[place]),) if place else None for place in places]
    return (told, active, graph.token(held[fill]))


def _of_table(graph: ObjectGraph, value: Any) -> object:
    """An iterator of a dictionary or set. Its position determines what is left only together with the table's end,
    which depends on the table's order and size."""
    held = held_by(value)
    if not held:
        _stays(graph, value)
        return None
    table: Any = held[0]
    kind: Any = dict if isinstance(table, dict) else type(table)
    of_values, of_items = (type(value) is type(iter(each)) for each in _TABLES[1:3])
    whole = list(kind.values(table) if of_values else kind.__iter__(table))
    graph.budget.spend(len(whole) // 16)
    graph.budget.check()
    try:
        (left,) = value.__reduce__()[1]  # of a copy, that is read to its end
    except RuntimeError:  # the table has grown or shrunk meanwhile
        return graph.follow(value)
    behind = len(whole) - len(left)
    rest = [key for key, _ in left] if of_items else left
    moved = kind is dict and _words(id(value) + _HEAD, (_DI_POS + 1) * _WORD)[_DI_POS] != behind
    if moved or not all(map(is_, whole[behind:], rest)):
        return graph.follow(value)
    _stays(graph, value)
    return (graph.token(table), len(left), kind.__sizeof__(table))


def _generator(graph: ObjectGraph, value: GeneratorType[object, object, object]) -> object:
    told = (code_digest(value.gi_code), value.__name__, value.__qualname__)
    frame = value.gi_frame
    if frame is None:
        _stays(graph, value)
        return (told, mourners(graph, value))
    home = home_of(graph, frame.f_globals)
    content = None if home == NOWHERE or value.gi_running else _frame(graph, value)
    if content is None:
        return graph.follow(value)
    _stays(graph, value)
    graph.restless = True  # releasing it may run its `finally` blocks
    if home is None:
        graph.tool(str(frame.f_globals.get("__name__", "")).partition(".")[0], value.__qualname__)
    else:
        graph.code(value.gi_code, home)
        if home:
            graph.refer(module(home))
    return (told, frame.f_lasti, content, mourners(graph, value))


def _frame(graph: ObjectGraph, value: GeneratorType[object, object, object]) -> object | None:
    """Variables and the value stack, in the order of their slots. None if the memory is not as expected.

    The garbage collector reports a function, its code, and then each object in the frame, from the first slot on,
    which is where the memory of a fixed-size generator ends; then an exception that is being handled.
    """
    code, held = value.gi_code, held_by(value)
    starts = [n for n, each in enumerate(held) if each is code and n and type(held[n - 1]) is FunctionType]
    if not starts:
        return None
    before, left = held[: starts[0]], held[starts[0] + 1 :]
    variables = {*code.co_varnames, *code.co_cellvars}
    places = len(variables) + len(code.co_freevars) + code.co_stacksize
    found = list[object]()
    for word in _words(id(value) + GeneratorType.__basicsize__, places * _WORD):
        if not left:
            break
        if word == id(left[0]):
            found.append((graph.token(left.pop(0)),))
        elif word == _NOTHING:
            found.append(None)
        else:
            break
    if left and not (len(left) == 1 and isinstance(left[0], BaseException)):
        return None
    snapshots = [each for each in before if type(each) is dict]  # results of `locals`
    return (found, graph.tokens(left), graph.tokens(snapshots))


def _stays(graph: ObjectGraph, value: object) -> None:
    graph.changeable(value)
    graph.stay("what was read to the middle cannot be carried over")


def _words(address: int, size: int) -> list[int]:
    return memoryview(_string_at(address, size)).cast("P").tolist()


class _Items:
    def __getitem__(self, index: int) -> int:
        return index


_SEQUENCES: Final[tuple[Any, ...]] = ([], (), "", "\u20ac", b"", bytearray(), range(0), _Items())
_TABLES: Final[tuple[Any, ...]] = ({}, {}.values(), {}.items(), set())

_ITERATORS: Final[tuple[type, ...]] = (
    *(type(iter(each)) for each in _SEQUENCES),
    type(reversed([])), type(iter(list, None)), reversed, map, filter, itertools.islice, itertools.chain,
    itertools.cycle, itertools.repeat, itertools.starmap, itertools.takewhile, itertools.dropwhile,
    itertools.filterfalse, itertools.accumulate, itertools.compress, itertools.pairwise,
)  # fmt: skip
"""Types in C without other state: no step depends on anything but the words."""

HALF_READ: Final[dict[type, Handler]] = {
    **dict.fromkeys(_ITERATORS, _iterator),
    **dict.fromkeys((zip, enumerate), _of_sequences),
    itertools.zip_longest: _of_longest,
    **dict.fromkeys((type(iter(each)) for each in _TABLES), _of_table),
    GeneratorType: _generator,
}
