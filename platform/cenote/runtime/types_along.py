"""The user's classes that an injection takes along, so that code in the jail can name what it is given.

The classes of values, of the elements of containers, and those that annotations mention: of functions, of fields, of
public methods, as deep as they go. A prompt shows the same ones.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterable, Iterator

from cenote.runtime.annotations import classes_in, declares_fields, hints_of
from cenote.runtime.injectables import Function, Injectable, Type
from cenote.runtime.pickling_unsafe import is_foreign
from cenote.runtime.references import ObjectReference
from cenote.runtime.sub_agents import is_agent

PEEK = 3
"""Elements of a container that are looked at."""

DEPTH = 4
"""Containers in containers that are looked into."""

MAX_CLASSES = 200
"""More than that is a framework, not somebody's data model."""


def types_along(items: Iterable[Injectable]) -> dict[str, type]:
    """The classes by name; of two with one name, the one nearest to the items."""
    found: dict[str, type] = {}
    seen: set[type] = set()
    waiting = deque((cls, _stays(item, cls)) for item in items for cls in _named_by(item))
    while waiting and len(found) < MAX_CLASSES:
        cls, stays = waiting.popleft()
        if cls in seen or not is_foreign(cls):
            continue
        seen.add(cls)
        if cls.__name__.isidentifier():
            found.setdefault(cls.__name__, cls)
        # What stays in the client keeps its own machinery there.
        mentioned = () if stays else _mentioned_by_class(cls)
        waiting.extend((each, False) for each in mentioned)
    return found


def _named_by(item: Injectable) -> Iterator[type]:
    if isinstance(item, Function):
        mentioned = _mentioned(item.func)
        # By value, a service's class would bring its code along, and what that refers to.
        yield from _records(mentioned) if item.host and item.by_value else mentioned
    elif isinstance(item, Type):
        yield from _mentioned_by_class(item.value)
    elif item.host:
        yield from _records(_mentioned_by_class(type(item.value)))
    elif not is_agent(item.value) and not isinstance(item.value, ObjectReference):
        yield from _held(item.value, DEPTH)


def _stays(item: Injectable, cls: type) -> bool:
    """Whether a class is there by name alone: a plain one in the signature of what runs in the client."""
    return isinstance(item, Function) and item.host and not declares_fields(cls)


def _records(classes: Iterable[type]) -> Iterator[type]:
    """What stays in the client keeps its own machinery there: only what may be an argument or a result goes along."""
    return (cls for cls in classes if declares_fields(cls))


def _held(value: object, depth: int) -> Iterator[type]:
    yield type(value)
    if depth == 0:
        return
    elements: Iterable[object] = ()
    if isinstance(value, dict):
        elements = value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        elements = value
    for _, element in zip(range(PEEK), elements, strict=False):
        yield from _held(element, depth - 1)


def _mentioned_by_class(cls: type) -> Iterator[type]:
    yield from _mentioned(cls)
    for name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(function) and not name.startswith("_"):
            yield from _mentioned(function)


def _mentioned(target: object) -> Iterator[type]:
    for annotation in hints_of(target).values():
        yield from classes_in(annotation)
