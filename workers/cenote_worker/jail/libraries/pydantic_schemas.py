"""Pydantic's compiled schemas in pickles.

A model class shares the dictionaries of its schema with the models that use it. While a pickle is loaded, such a
dictionary may still be empty when a validator is built from it. So each validator and serializer is pickled with its
own copy, which is complete by then.
"""

from __future__ import annotations

from typing import Any

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


_COMPILED = frozenset({"SchemaSerializer", "SchemaValidator"})


def reduced_schema(obj: object) -> tuple[Any, ...] | None:
    """How to pickle a compiled schema, as `reducer_override` returns it; None for any other object."""
    cls = type(obj)
    if cls.__name__ not in _COMPILED or cls.__module__.partition(".")[0] != "pydantic_core":
        return None
    reduction: Any = obj.__reduce__()
    function, (schema, *settings), *rest = reduction
    return (function, (_copied(schema, {}), *settings), *rest)


def _copied(node: Any, made: dict[int, Any]) -> Any:
    """Copies dictionaries, lists and tuples, each once; their items stay the same objects."""
    if id(node) in made:
        return made[id(node)]
    if type(node) is dict:
        copy: Any = {key: _copied(value, made) for key, value in node.items()}
    elif type(node) is list or type(node) is tuple:
        copy = type(node)(_copied(value, made) for value in node)
    else:
        return node
    made[id(node)] = copy
    return copy
