"""Objects of Python's own, described so that the rebuilt one is indistinguishable.

Closed files, as a `with` leaves them under a name: by name and mode and, for text, the encoding and the line endings
that were read, as long as nothing else refers to the file or to what is inside of it.

Modules, and their functions and classes, as imports bind them: by address. Nothing has been set on a module since the
copy, or no difference is described; a name in a module has the same object in the copy.

Functions that cells define: by their code. Closures, decorated functions and those with attributes have more state.

Sets: so that the new one has the same memory layout. The iteration order of a set depends on its former members.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final
from weakref import getweakrefcount

from cenote_worker.jail.snapshots.deltas.plain_values_unsafe import packed, unpacked
from cenote_worker.jail.state.set_layout import Recipe, follow, is_alike, recipe_for
from cenote_worker.process.memory_unsafe import IS_READABLE
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

FileDescription = tuple[str, str, str | None, str | None, tuple[str, ...]]
"""Name, mode, encoding, error handling, line endings. The third and fourth are None for files of bytes."""

_BUFFERED: Final = frozenset((io.BufferedReader, io.BufferedWriter, io.BufferedRandom))
_OF_RAW: Final = frozenset(("name", "__IOBase_closed"))
_MAX_NAME: Final = 1_000

_ONE: Final = 2
"""Python's reference count of an object with one referrer: that one, and the argument."""

_count = sys.getrefcount
_open = io.open
_memory, _write, _seek, _close = os.memfd_create, os.write, os.lseek, os.close


def describe_file(value: object) -> FileDescription | None:
    """None for what is not a closed file, or has other state."""
    if type(value) is not io.TextIOWrapper and type(value) not in _BUFFERED:
        return None
    try:
        return _told(value) if value.closed else None  # type: ignore[attr-defined]
    except ValueError:  # it was detached
        return None


def can_rebuild_file(told: FileDescription) -> bool:
    try:
        return describe_file(rebuild_file(told)) == told
    except (OSError, ValueError, LookupError):
        return False


def rebuild_file(told: FileDescription) -> object:
    """Raises OSError, ValueError or LookupError."""
    name, mode, encoding, errors, ends = told
    memory = _memory("closed", os.MFD_CLOEXEC)
    try:
        value: Any = _open(memory, mode, encoding=encoding, errors=errors)
    except BaseException:
        _close(memory)
        raise
    with value:
        if ends:
            _write(memory, " ".join(ends).encode(encoding or ""))
            value.seek(0)
            value.read()
    raw = value.raw if encoding is None else value.buffer.raw
    raw.name = name
    return value


def _told(value: Any) -> FileDescription | None:
    is_text = type(value) is io.TextIOWrapper
    if is_text and (type(value.buffer) not in _BUFFERED or value.__dict__.keys() != {"mode"}):
        return None  # a compressed file, or memory; or not made by `open`
    if _has_others(value, is_text):
        return None
    buffer = value.buffer if is_text else value
    if buffer.__dict__ or type(buffer.raw) is not io.FileIO or buffer.raw.__dict__.keys() != _OF_RAW:
        return None
    raw, told = buffer.raw, (buffer.raw.name, value.mode)
    if any(map(getweakrefcount, (value, buffer, raw))) or set(map(type, told)) != {str}:
        return None
    if not (raw.closed and raw.closefd and len(told[0]) <= _MAX_NAME):
        return None
    if not is_text:
        return (*told, None, None, ())
    if value.line_buffering or value.write_through:
        return None
    codec, ends = (value.encoding, value.errors), value.newlines
    if set(map(type, codec)) != {str}:
        return None
    return (*told, *codec, (ends,) if type(ends) is str else ends or ())


def _has_others(value: Any, is_text: bool) -> bool:
    """Whether another object refers to the inner objects. No variable may, during this call."""
    if is_text:  # which has the file itself as well as the buffer
        return _count(value.buffer) != _ONE or _count(value.buffer.raw) != _ONE + 1
    return _count(value.raw) != _ONE


LibraryAddress = tuple[str, str]
"""Dotted name of the module; name in it, empty for the module itself."""

_FROM_MODULES: Final = frozenset((FunctionType, BuiltinFunctionType, type))

_modules = sys.modules
_get = object.__getattribute__


def describe_library_object(value: Any) -> LibraryAddress | None:
    """None for anything else, and for what a module creates on access."""
    if type(value) is ModuleType:
        dotted = _get(value, "__dict__").get("__name__")
        told: LibraryAddress | None = (dotted, "") if type(dotted) is str else None
    elif type(value) in _FROM_MODULES:
        home, name = value.__module__, value.__name__
        told = (home, name) if type(home) is str and name else None
    else:
        return None
    return told if told is not None and _found(told) is value else None


def find_library_object(told: LibraryAddress) -> object:
    """Raises KeyError if it does not exist."""
    dotted, name = told
    module = _modules[dotted]
    return _get(module, "__dict__")[name] if name else module


def _found(told: LibraryAddress) -> object:
    """The object at an address, in a module whose contents are reliable."""
    module = _modules.get(told[0])
    if told[0] == "__main__" or type(module) is not ModuleType:
        return None
    return module if not told[1] else _get(module, "__dict__").get(told[1])


_ATOMS: Final = frozenset((type(None), bool, int, float, complex, str, bytes))
_MOST_PARTS: Final = 50
_MOST_CODE: Final = 4_096
"""Bytes of instructions: not even two longer functions would fit."""

_classes = vars(builtins)

Defaults = tuple[object, ...] | None
Annotations = dict[str, tuple[bool, object]]
"""For each parameter a text or None, or the name of a builtin class, marked by True."""

FunctionDescription = tuple[CodeType, Defaults, dict[str, object] | None, Annotations]


def describe_function(value: object, namespace: Mapping[str, object]) -> FunctionDescription | None:
    """namespace: of the function's globals. None for anything else. References to the function are not checked."""
    if not is_inert_function(value, namespace):
        return None
    assert type(value) is FunctionType
    annotations = _annotations(value)
    if annotations is None:
        return None
    told = value.__code__, value.__defaults__, value.__kwdefaults__, annotations
    return told if _is_alike(rebuild_function(told, value.__globals__), value) else None


def is_inert_function(value: object, namespace: Mapping[str, object]) -> bool:
    """Whether it is a function that runs no code when it is released. namespace: see `describe_function`.

    Asked of each function when the process is copied, so nothing is built to find out.
    """
    if type(value) is not FunctionType or value.__globals__ is not namespace:
        return False
    if value.__closure__ is not None or not _is_bare(value) or getweakrefcount(value):
        return False
    if not _is_compiled(value.__code__) or getattr(value, "__type_params__", None):
        return False
    if getattr(value, "__annotate__", None) is not None:  # code of its own, from Python 3.14 on
        return False
    return _annotations(value) is not None and _are_plain(value.__defaults__ or ()) and _are_keywords(value)


def rebuild_function(told: FunctionDescription, namespace: dict[str, object]) -> FunctionType:
    code, defaults, keywords, annotations = told
    function = FunctionType(code, namespace, code.co_name, defaults)
    function.__kwdefaults__ = keywords
    if annotations:
        function.__annotations__ = {
            name: _classes[str(each)] if is_class else each for name, (is_class, each) in annotations.items()
        }
    return function


def _is_bare(value: FunctionType) -> bool:
    """Whether it has no attributes, and only containers and strings of the types that Python gives to a function:
    nothing is asked of others.
    """
    texts = {type(each) for each in (value.__name__, value.__qualname__)}
    return (
        type(value.__dict__) is dict
        and not value.__dict__
        and texts == {str}
        and {type(value.__doc__), type(value.__module__)} <= {str, type(None)}
        and type(value.__annotations__) is dict
        and set(map(type, value.__annotations__)) <= {str}
        and type(value.__defaults__) in (tuple, type(None))
        and type(value.__kwdefaults__) in (dict, type(None))
        and set(map(type, value.__kwdefaults__ or ())) <= {str}
    )


def _is_compiled(code: CodeType) -> bool:
    """Whether it is short enough, and has only constants that a compiler creates."""
    return len(code.co_code) <= _MOST_CODE and all(map(_is_constant, code.co_consts))


def _is_constant(value: object) -> bool:
    if isinstance(value, CodeType):
        return _is_compiled(value)
    if type(value) is frozenset and tuple(unpacked(packed(value))) != tuple(value):
        return False  # a loop over it would have another order, since packing sorts sets
    if type(value) is tuple or type(value) is frozenset:
        return all(map(_is_constant, value))
    return type(value) in _ATOMS or value is ...


def _annotations(value: FunctionType) -> Annotations | None:
    found = dict[str, tuple[bool, object]]()
    for name, each in value.__annotations__.items():
        if each is None or type(each) is str:
            found[name] = False, each
        elif type(each) is type and _is_builtin(each):
            found[name] = True, each.__name__
        else:
            return None
    return found


def _is_builtin(cls: type) -> bool:
    return _classes.get(cls.__name__) is cls


def _are_keywords(value: FunctionType) -> bool:
    return value.__kwdefaults__ is None or _are_plain(tuple(value.__kwdefaults__.values()))


def _are_plain(values: tuple[object, ...]) -> bool:
    """Whether they are few, immutable, and equal to themselves."""
    return len(values) <= _MOST_PARTS and all(type(each) in _ATOMS and each == each for each in values)


def _is_alike(made: FunctionType, value: FunctionType) -> bool:
    """Compares what a program can set on a function. Both have the same code."""
    return all(
        getattr(made, name) == getattr(value, name)
        for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
    )


SetDescription = tuple[list[object], tuple[int, int, list[int], list[int]] | None]
"""Members in the order in which to add them; the rest of the recipe, if it needs one."""


def describe_set(value: set[Any]) -> SetDescription | None:
    """None if no recipe is known. All members are plain."""
    if not IS_READABLE:
        return None
    recipe = recipe_for(value)
    told: SetDescription = list(value), None
    if recipe is not None:
        told = recipe.members, (*recipe[:3], [*recipe.late])
    return told if is_alike(rebuild_set(told), value) else None


def rebuild_set(told: SetDescription) -> set[Any]:
    """In a process in which the members have the same hashes."""
    members, recipe = told
    value = set[Any]()
    if recipe is None:
        value.update(members)
    else:
        size, finger, removed, late = recipe
        follow(value, Recipe(size, finger, removed, members, late))
    return value
