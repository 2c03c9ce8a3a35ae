"""What writes and reads tables of text, as descriptions: where to and where from, and how. Rows are not kept."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any, Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.graph import Graph, Handler
from cenote_worker.tracking.objects import held_by

__builtins__ = BUILTINS

_MANNERS: Final = (
    "delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting", "skipinitialspace", "strict",
)  # fmt: skip


def handlers(csv: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported `csv`, which does not name them."""
    return {type(csv.writer(io.StringIO())): _writer, type(csv.reader([])): _reader}


def _writer(graph: Graph, value: Any) -> object:
    graph.changeable(value)
    graph.stay("a writer of tables cannot be pickled")
    return _table(graph, value)


def _reader(graph: Graph, value: Any) -> object:
    graph.changeable(value)
    graph.stay("a reader of tables cannot be pickled")
    return (_table(graph, value), value.line_num)


def _table(graph: Graph, value: Any) -> object:
    dialect = value.dialect
    held = [each for each in held_by(value) if each is not dialect]
    return (graph.tokens(held), graph.tokens(getattr(dialect, each) for each in _MANNERS))
