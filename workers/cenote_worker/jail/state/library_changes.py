"""What a program has set in libraries, for transfer to another process: attributes, tables, handlers of `logging`.

No variable refers to these. So each place where something was set is stored like a variable, by itself or with those
that it shares objects with. A library's container or instance is stored as its content, which is put into the
library's own object in the other process: other modules may hold the same object.
"""

from __future__ import annotations

import abc
import importlib
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, Final

from cenote_worker.execution.trace import Location
from cenote_worker.execution.trace import module as location_of
from cenote_worker.jail.state.pickles_unsafe import NotKept
from cenote_worker.jail.tracking.process_state.library_state import LARGE
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.jail.values.instance_pickles import is_of_the_user
from cenote_worker.process.pristine import BUILTINS, builtins_of_cells

__builtins__ = BUILTINS

Place = tuple[str, str, str]
"""The kind of place, its holder by dotted name, and the name of an attribute."""

ATTRIBUTE: Final = "attribute"
CONTENT: Final = "content"
OPTION: Final = "option"
LOGGER: Final = "logger"
CAPTURING: Final = "warnings into logging"
REGISTERED: Final = "registered"

_modules = sys.modules
_CONTAINERS: Final = (dict, list, set)
_SCALARS: Final = (bool, int, float, str, type(None))
_ELSEWHERE: Final = frozenset(
    (("sys", "path"), ("sys", "modules"), ("warnings", "filters"), ("logging", "root"), ("logging", "_handlers"),
     ("logging", "_handlerList"), ("logging", "_warnings_showwarning"), ("matplotlib", "rcParams"))
)  # fmt: skip
"""Places that are transferred in another way."""

_SEEN_OTHERWISE: Final = frozenset(
    ("csv", "socket", "matplotlib", "collections", "numbers", "sklearn", "__future__")
)
"""Libraries whose changes are not looked for here: they are stored as settings or as registered classes."""

_OF_CLASSES: Final = (
    FunctionType,
    classmethod,
    staticmethod,
    property,
    MemberDescriptorType,
    GetSetDescriptorType,
)
_DEEPEST: Final = 4
_WITH_CLASSES: Final = ("collections.abc", "numbers", "io", "typing", "contextlib", "os", "importlib.abc")
"""Modules with abstract classes for which programs register their classes."""


class Gone:
    """Stands for an attribute that was deleted."""


def told(place: Place) -> str:
    """The place as text."""
    kind, dotted, key = place
    match kind:
        case "logger":
            return f"logger {dotted or 'root'}"
        case "registered":
            return f"classes registered for {dotted}"
        case "warnings into logging":
            return "logging.captureWarnings"
    return f"{dotted}.{key}"


def places(tracker: Tracker | None) -> dict[Place, object]:
    """Everything that was set and can be stored. The containers and instances themselves are `anchored`."""
    found = dict[Place, object]()
    if tracker is not None:
        patches = tracker.patches
        for dotted, target, key in patches.set_there():
            if (dotted, key) not in _ELSEWHERE:
                with builtins_of_cells():
                    value = vars(target).get(key, Gone)
                found |= _place(dotted, key, value, replaced=(dotted, key) in patches.replaced)
        for dotted, name, key in patches.set_on:
            holder = getattr(_modules.get(dotted), name, None)
            if hasattr(holder, key):
                found[OPTION, f"{dotted}:{name}", key] = getattr(holder, key)
        unseen_in = patches.packages_unseen()
        for package in unseen_in:
            found |= _unseen_in(package)
        if not unseen_in.isdisjoint(each.partition(".")[0] for each in _WITH_CLASSES):
            found |= _registered()
        for dotted in tracker.own_modules:
            found |= _in_own(dotted)
    return found | _loggers()


def locations(keys: Iterable[object]) -> Iterator[Location]:
    """Locations of modules and classes with stored changes. keys: names, and places."""
    for key in keys:
        if isinstance(key, tuple) and key[0] in (ATTRIBUTE, CONTENT, OPTION):
            yield location_of(key[1].partition(":")[0])


def unseen(tracker: Tracker | None, found: Mapping[Place, object]) -> list[str]:
    """Libraries in which something was set that is not among the places."""
    if tracker is None:
        return []
    tops = {place[1].partition(":")[0].partition(".")[0] for place in found} | _SEEN_OTHERWISE
    return sorted(tracker.patches.packages_unseen() - tops)


def anchored(found: Mapping[Place, object]) -> dict[int, tuple[str, str]]:
    """Objects at these places that are stored as their content, by id; see Landing.anchor."""
    there = {place: _at(place) for place in found if place[0] == CONTENT}
    return {id(value): ("place", f"{dotted}:{key}") for (_, dotted, key), value in there.items()}


def replacing(found: Mapping[Place, object]) -> list[object]:
    """Objects that replace an object of a library, and that another process does not have."""
    return [value for place, value in found.items() if place[0] == ATTRIBUTE and type(value) in _CONTAINERS]


def at(told_place: str) -> object:
    """The object at that place. Raises KeyError."""
    dotted, _, key = told_place.partition(":")
    return _at((CONTENT, dotted, key))


def put(found: Mapping[Place, object], tracker: Tracker | None) -> None:
    """Sets all of it in this process. Raises NotKept."""
    for place, value in found.items():
        try:
            _put(place, value)
        except Exception as error:
            raise NotKept(f"{told(place)} cannot be set: {type(error).__name__}: {error}") from None
        kind, dotted, key = place
        if tracker is not None and kind in (ATTRIBUTE, CONTENT) and dotted not in tracker.own_modules:
            tracker.patches.note(dotted, _target(dotted), key, replaced=kind == ATTRIBUTE)
        elif tracker is not None and kind == OPTION:
            home, _, name = dotted.partition(":")
            tracker.patches.set_on.add((home, name, key))
        elif tracker is not None and kind == REGISTERED:
            tracker.patches.changed_unseen(dotted.partition(".")[0])


def _place(dotted: str, key: str, value: Any, *, replaced: bool) -> dict[Place, object]:
    if type(value) is ModuleType:
        return {}
    if not replaced and (content := _content(value)) is not None:
        return {(CONTENT, dotted, key): content}
    return {(ATTRIBUTE, dotted, key): value}


def _content(value: Any) -> tuple[str, Any] | None:
    """None for an object without content that can be set."""
    if type(value) in _CONTAINERS:
        return type(value).__name__, value.copy()
    table = _bare(value, "__dict__")
    if type(table) is dict and not isinstance(value, type | FunctionType | BuiltinFunctionType):
        return "instance", table.copy()
    return None


def _put(place: Place, value: Any) -> None:
    kind, dotted, key = place
    if kind == ATTRIBUTE:
        if value is not Gone:
            setattr(_target(dotted), key, value)
        elif key in vars(_target(dotted)):
            delattr(_target(dotted), key)
    elif kind == CONTENT:
        kind, content = value
        _fill(_at(place), kind, content, _DEEPEST)
    elif kind == OPTION:
        home, _, name = dotted.partition(":")
        setattr(getattr(importlib.import_module(home), name), key, value)
    elif kind == LOGGER:
        _put_logger(dotted, value)
    elif kind == CAPTURING:
        logging.captureWarnings(True)
    elif kind == REGISTERED:
        for each in value:
            abc.ABCMeta.register(_target(dotted), each)


def _fill(there: Any, kind: str, content: Any, depth: int) -> None:
    """Puts content into a library's object; the objects in there stay the same as far as possible."""
    if kind == "instance":
        _fill(vars(there), "dict", content, depth)
    elif kind == "dict":
        merged = {key: _merged(there.get(key), value, depth) for key, value in content.items()}
        there.clear()
        there.update(merged)
    elif kind == "list":
        old = list(there)
        pairs = (
            zip(old, content, strict=True) if len(old) == len(content) else ((None, each) for each in content)
        )
        there[:] = [_merged(was, now, depth) for was, now in pairs]
    else:
        there.clear()
        there.update(content)


def _merged(was: Any, now: Any, depth: int) -> Any:
    if (
        type(was) is type(now)
        and depth
        and (content := _content(now)) is not None
        and not is_of_the_user(type(now))
    ):
        kind, held = content
        _fill(was, kind, held, depth - 1)
        return was
    return now


def _target(dotted: str) -> Any:
    """A module or a class by its dotted name. Raises ImportError, AttributeError."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            found: Any = _modules.get(name) or importlib.import_module(name)
        except ImportError:
            if length == 1:
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ImportError(dotted)


def _at(place: Place) -> Any:
    _, dotted, key = place
    try:
        return vars(_target(dotted))[key]
    except (ImportError, AttributeError) as error:
        raise KeyError(f"{dotted}.{key}") from error


# -- where the tracker has not seen what was set --


def _unseen_in(package: str) -> dict[Place, object]:
    """User objects in the modules of a library, and what its functions set as global variables."""
    found = dict[Place, object]()
    tops = {package} | {_top(each) for each in vars(_modules[package]).values() if type(each) is FunctionType}
    for dotted, module in list(_modules.items()):
        if type(module) is not ModuleType or dotted.partition(".")[0] not in tops:
            continue
        table = vars(module)
        for key, value in list(table.items()):
            if isinstance(value, type) and value.__module__ == dotted and not _is_users(value):
                found |= _in_class(value)
            elif _is_users(value):
                found[ATTRIBUTE, dotted, key] = value
            elif type(value) in _CONTAINERS and len(value) <= LARGE and any(map(_is_users, _items(value))):
                found[CONTENT, dotted, key] = _content(value)
        for key in _stored_by_functions(table, dotted):
            if key in table and type(table[key]) in _SCALARS:
                found[ATTRIBUTE, dotted, key] = table[key]
    return found


def _in_own(dotted: str) -> dict[Place, object]:
    """All that a user's module has besides functions and classes, and its classes have besides methods."""
    found = dict[Place, object]()
    for key, value in list(vars(_modules[dotted]).items()):
        if key[:2] == "__" or type(value) is ModuleType:
            continue
        if _bare(value, "__module__") == dotted and _bare(value, "__qualname__") == key:
            table = vars(value) if isinstance(value, type) else {}
            own = {
                inner: held
                for inner, held in table.items()
                if inner[:1] != "_" and type(held) not in _OF_CLASSES
            }
            found |= {(ATTRIBUTE, f"{dotted}.{key}", inner): held for inner, held in own.items()}
        else:
            found[ATTRIBUTE, dotted, key] = value
    return found


def _in_class(cls: type) -> dict[Place, object]:
    dotted, found = f"{cls.__module__}.{cls.__qualname__}", dict[Place, object]()
    for key, value in vars(cls).items():
        held = _bare(value, "__dict__")
        if _is_users(value) or (
            type(held) is dict and type(value) is not type and any(map(_is_users, held.values()))
        ):
            found[ATTRIBUTE, dotted, key] = value
        elif type(value) in _CONTAINERS and len(value) <= LARGE and any(map(_is_users, _items(value))):
            found[CONTENT, dotted, key] = _content(value)
    return found


def _bare(value: Any, name: str) -> Any:
    """An attribute, or None, without the value's own `__getattr__`, which may raise anything."""
    look = type.__getattribute__ if issubclass(type(value), type) else object.__getattribute__
    try:
        return look(value, name)
    except AttributeError:
        return None


def _is_users(value: Any) -> bool:
    if type(value) is tuple:
        return any(map(_is_users, value))
    if type(value) is FunctionType:
        return value.__globals__.get("__name__") == "__main__"
    return is_of_the_user(value if isinstance(value, type) else type(value))


def _items(value: Any) -> Iterator[Any]:
    yield from value
    if type(value) is dict:
        yield from value.values()


def _top(function: FunctionType) -> str:
    return str(function.__globals__.get("__name__", "")).partition(".")[0]


def _stored_by_functions(table: Mapping[str, object], dotted: str) -> set[str]:
    """Names that functions of a module declare as global, and set."""
    stored = set[str]()
    for value in table.values():
        if type(value) is FunctionType and value.__module__ == dotted:
            stored |= _stored_by(value.__code__)
    return stored


def _stored_by(code: CodeType) -> set[str]:
    import dis  # of the standard library, and only needed here

    store = dis.opmap["STORE_GLOBAL"]
    if store not in code.co_code[::2]:
        return set()
    return {each.argval for each in dis.get_instructions(code) if each.opcode == store}


# -- logging, and abstract classes --


def _loggers() -> dict[Place, object]:
    """Loggers with handlers or filters; if there are any, also the levels of all others."""
    known = logging.Logger.manager.loggerDict.items()
    loggers = {"": logging.getLogger()} | {
        key: each for key, each in known if isinstance(each, logging.Logger)
    }
    if not any(each.filters or any(map(_does_something, each.handlers)) for each in loggers.values()):
        return {}
    found: dict[Place, object] = {
        (LOGGER, name, ""): (each.level, each.propagate, each.disabled, each.handlers, each.filters)
        for name, each in loggers.items()
    }
    found[LOGGER, "", "disable"] = logging.Logger.manager.disable
    if getattr(logging, "_warnings_showwarning", None) is not None:
        found[CAPTURING, "logging", ""] = True
    return found


def _does_something(handler: logging.Handler) -> bool:
    return type(handler) is not logging.NullHandler


def _put_logger(name: str, value: Any) -> None:
    if type(value) is int:
        logging.disable(value)
        return
    logger = logging.getLogger(name)
    level, logger.propagate, logger.disabled, handlers, filters = value
    logger.setLevel(level)
    logger.handlers[:] = handlers
    logger.filters[:] = filters


def _registered() -> dict[Place, object]:
    """The user's classes, by the library's abstract class that they were registered for."""
    found = dict[Place, object]()
    for dotted in _WITH_CLASSES:
        for key, cls in list(vars(_modules.get(dotted, ModuleType(""))).items()):
            if isinstance(cls, abc.ABCMeta) and not is_of_the_user(cls):
                registry = abc._get_dump(cls)[0]  # type: ignore[attr-defined]
                users = [
                    each
                    for each in (weak() for weak in registry)
                    if each is not None and is_of_the_user(each)
                ]
                if users:
                    found[REGISTERED, f"{dotted}.{key}", ""] = sorted(
                        users, key=lambda each: each.__qualname__
                    )
    return found
