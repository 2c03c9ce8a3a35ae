"""Objects of Polars as descriptions.

The memory of a column is never changed: a method that works in place puts other memory under the column, so comparing
columns before and after a step shows whether it did. But a column may be a view of an array's memory, which can
change. Expressions and lazy frames never change either. Polars can serialize an expression, unless it has Python
functions, which it would pickle; a lazy frame would write out all its data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from cenote_worker.jail.tracking.budget import TOO_LARGE
from cenote_worker.jail.tracking.code.unbounded_effects import others_at_work
from cenote_worker.jail.tracking.descriptions.extension_objects import IdentityTokens
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_STREAMED = 8
"""How much longer than hashing a column serializing it takes: 0.7 GB/s were measured."""

_modules = sys.modules


def handlers(polars: ModuleType) -> dict[type, Handler]:
    """Handlers for exact types of an imported Polars. Its own objects are inside instances of its Python classes."""
    inner, stamps = polars._plr, IdentityTokens()
    return {
        inner.PySeries: _series,
        inner.PyDataFrame: _frame,
        polars.Expr: _expression(stamps),
        polars.LazyFrame: _sealed(stamps, "_ldf"),
    }


def _frame(graph: ObjectGraph, value: Any) -> object:
    graph.changeable(value)
    return (value.height(), [_column(graph, column, value) for column in value.get_columns()])


def _series(graph: ObjectGraph, value: Any) -> object:
    graph.changeable(value)
    return _column(graph, value, value)


def _column(graph: ObjectGraph, column: Any, holder: Any) -> object:
    """holder: the object that is described; it is unknown if its column is."""
    sorting = column.is_sorted_ascending_flag(), column.is_sorted_descending_flag()
    kind = str(column.dtype())
    chunks = [chunk._s for chunk in column.get_chunks()] if column.n_chunks() > 1 else [column]
    graph.shown += [stretch for chunk in chunks for stretch in _shown(chunk)]
    if kind == "Object":
        graph.blind = True
        return graph.follow(holder)
    return (column.name(), kind, sorting, [(int(chunk.len()), _content(graph, chunk)) for chunk in chunks])


def _content(graph: ObjectGraph, chunk: Any) -> object:
    view = _view(chunk)
    if view is not None:
        return graph.memory(view.view("V1").view("u1") if view.nbytes else b"", view.nbytes)
    if not graph.budget.has_room(_STREAMED * chunk.estimated_size()):
        graph.unknown(TOO_LARGE)
        return None
    written = chunk.__getstate__()
    graph.budget.allows(_STREAMED * len(written))
    return graph.memory(written, len(written))


def _view(chunk: Any) -> Any:
    """The memory of numbers without gaps; None for anything else."""
    return chunk.to_numpy_view() if "numpy" in _modules else None


def _shown(chunk: Any) -> Iterator[tuple[int, int]]:
    """Address ranges of its memory. Without numpy there is no array that could share it."""
    arrow = _modules.get("pyarrow")
    if arrow is not None:
        for part in arrow.chunked_array(chunk).chunks:
            yield from (
                (each.address, each.address + each.size) for each in part.buffers() if each is not None
            )
    elif (view := _view(chunk)) is not None:
        start = view.__array_interface__["data"][0]
        yield start, start + view.nbytes


def _expression(stamps: IdentityTokens) -> Handler:
    sealed = _sealed(stamps, "_pyexpr")

    def described(graph: ObjectGraph, value: Any) -> object:
        written = _written(vars(value)["_pyexpr"])
        if not written or vars(value).keys() != {"_pyexpr"}:
            return sealed(graph, value)
        graph.changeable(value)
        return graph.memory(written, len(written))

    return described


def _written(inner: Any) -> bytes:
    """The serialized expression; empty for one with any Python object in it. That would be pickled, which runs user
    code, so pickling is disabled meanwhile."""
    pickles = [_modules.get(library) for library in ("pickle", "cloudpickle")]
    if None in pickles or others_at_work():
        return b""
    before = [(vars(library), vars(library)["dumps"]) for library in pickles]
    try:
        for table, _ in before:
            table["dumps"] = _refusing
        written: bytes = inner.__getstate__()
    except Exception:
        return b""
    finally:
        for table, dumps in before:
            table["dumps"] = dumps
    return written


def _refusing(*_arguments: object, **_options: object) -> None:
    raise TypeError("nothing is pickled to look at an expression")


def _sealed(stamps: IdentityTokens, inner: str) -> Handler:
    """For an object that holds such an object of Polars: as long as both are the same, its content is the same."""

    def described(graph: ObjectGraph, value: Any) -> object:
        graph.changeable(value)
        table = vars(value)
        graph.seal(f"a {type(value).__name__} of Polars does not tell what it holds")
        others = {key: item for key, item in table.items() if key != inner}
        return (stamps.of(value, table[inner]), graph.mapping(others))

    return described
