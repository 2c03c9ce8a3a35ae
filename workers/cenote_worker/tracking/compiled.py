"""Pydantic's compiled schemas as descriptions: they never change, and are what they were compiled of."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.graph import Graph, Handler

__builtins__ = BUILTINS


def handlers(pydantic_core: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported core of pydantic."""
    return dict.fromkeys((pydantic_core.SchemaValidator, pydantic_core.SchemaSerializer), _compiled)


def _compiled(graph: Graph, value: Any) -> object:
    _, made_of, *_ = value.__reduce__()
    return graph.tokens(made_of)
