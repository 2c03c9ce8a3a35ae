"""Caches of functions as descriptions: what they remember, in the order of use, and how often that was asked for."""

from __future__ import annotations

import functools
from typing import Any, Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.graph import Graph
from cenote_worker.tracking.objects import held_by

__builtins__ = BUILTINS

CACHE: Final[type] = type(functools.lru_cache(len))
_LINK: Final = "_lru_list_elem"
"""The class of what keeps a bounded cache in order. Each link's key and result are told for themselves."""


def cached(graph: Graph, value: Any) -> object:
    """Its parameters are attributes that `functools` has set."""
    graph.changeable(value)
    graph.stay("a cache of functools cannot be pickled")
    held = [each for each in held_by(value) if not _is_of_the_order(each)]
    return (graph.tokens(held), tuple(value.cache_info()), graph.inline(value.__dict__))


def _is_of_the_order(value: Any) -> bool:
    if type(value) is dict:
        return any(type(each).__name__ == _LINK for each in dict.values(value))
    return type(value) is object or (isinstance(value, type) and value.__name__ == _LINK)
