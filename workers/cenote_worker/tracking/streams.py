"""Files that were closed, and those that are in memory, as descriptions. An open one on a disk is not looked into."""

from __future__ import annotations

import io
from typing import Any, Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.graph import Graph, Handler
from cenote_worker.tracking.objects import held_by

__builtins__ = BUILTINS

_ON_DISK: Final = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_state_of_text = io.StringIO.__getstate__


def _on_disk(graph: Graph, value: Any) -> object:
    """One that a `with` has left has a name and a mode, and nothing else that anybody can get at."""
    if not _is_closed(value):
        return graph.follow(value)
    graph.changeable(value)
    told = (getattr(value, "encoding", None), getattr(value, "errors", None))
    own = value.__dict__
    return (graph.tokens((value.name, value.mode)), told, graph.inline(own) if own else None)


def _is_closed(value: Any) -> bool:
    """Down to the file itself: a wrapper may be around any object, which has a `closed` and a `name` of its own."""
    try:
        if type(value) is io.TextIOWrapper:
            value = value.buffer
        if type(value) in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom):
            value = value.raw
    except ValueError:  # it was detached
        return False
    return type(value) is io.FileIO and value.closed


def _text(graph: Graph, value: io.StringIO) -> object:
    graph.changeable(value)
    if value.closed:
        return ("closed", _own(graph, value))
    state: Any = _state_of_text(value)
    content, newline, position, _ = state
    return (content, newline, position, _own(graph, value))


def _bytes(graph: Graph, value: io.BytesIO) -> object:
    graph.changeable(value)
    if value.closed:
        return ("closed", _own(graph, value))
    with value.getbuffer() as memory:
        content = graph.memory(memory, memory.nbytes)
    return (content, value.tell(), _own(graph, value))


def _own(graph: Graph, value: object) -> object:
    """Its own attributes, without asking for them: that makes a table for them, which pickles tell of."""
    return [graph.inline(each) for each in held_by(value) if type(each) is dict and each]


STREAMS: Final[dict[type, Handler]] = {
    **dict.fromkeys(_ON_DISK, _on_disk),
    io.StringIO: _text,
    io.BytesIO: _bytes,
}
