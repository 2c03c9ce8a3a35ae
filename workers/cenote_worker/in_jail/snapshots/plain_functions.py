"""Functions that cells define, told by their code: those that have nothing but that, and small plain defaults.

Another one made of it, with the same names around it, does the same. What closes over variables, was decorated or has
attributes has more.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Final
from weakref import getweakrefcount

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.plain_values_unsafe import packed, unpacked

__builtins__ = BUILTINS

_ATOMS: Final = frozenset((type(None), bool, int, float, complex, str, bytes))
_MOST_PARTS: Final = 50
_MOST_CODE: Final = 4_096
"""Bytes of instructions: of longer ones not even two could be told."""

_classes = vars(builtins)

Defaults = tuple[object, ...] | None
Annotations = dict[str, tuple[bool, object]]
"""Of each a text or None, or the name of one of Python's own classes, which True stands before."""

Told = tuple[CodeType, Defaults, dict[str, object] | None, Annotations]


def told_of(value: object, namespace: Mapping[str, object]) -> Told | None:
    """namespace: the global names that it has to have. None for anything else. Who has it is not looked at."""
    if type(value) is not FunctionType or value.__globals__ is not namespace:
        return None
    if value.__closure__ is not None or not _is_bare(value) or getweakrefcount(value):
        return None
    if not _is_compiled(value.__code__) or getattr(value, "__type_params__", None):
        return None
    if getattr(value, "__annotate__", None) is not None:  # code of its own, from Python 3.14 on
        return None
    annotations = _annotations(value)
    if annotations is None or not (_are_plain(value.__defaults__ or ()) and _are_keywords(value)):
        return None
    told = value.__code__, value.__defaults__, value.__kwdefaults__, annotations
    return told if _is_alike(rebuilt(told, value.__globals__), value) else None


def rebuilt(told: Told, namespace: dict[str, object]) -> FunctionType:
    code, defaults, keywords, annotations = told
    function = FunctionType(code, namespace, code.co_name, defaults)
    function.__kwdefaults__ = keywords
    if annotations:
        function.__annotations__ = {
            name: _classes[str(each)] if is_class else each for name, (is_class, each) in annotations.items()
        }
    return function


def _is_bare(value: FunctionType) -> bool:
    """Whether it has no attributes, and such containers and texts as Python gives to a function: of others nothing is
    asked.
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
    """Whether it is not too long, and has such constants as a compiler gives it."""
    return len(code.co_code) <= _MOST_CODE and all(map(_is_constant, code.co_consts))


def _is_constant(value: object) -> bool:
    if isinstance(value, CodeType):
        return _is_compiled(value)
    if type(value) is frozenset and tuple(unpacked(packed(value))) != tuple(value):
        return False  # a loop over it would go another way round: what packs sets puts them in order
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
    """Each of a few, which cannot change, and is equal to itself."""
    return len(values) <= _MOST_PARTS and all(type(each) in _ATOMS and each == each for each in values)


def _is_alike(made: FunctionType, value: FunctionType) -> bool:
    """By what a program can set of a function. Both have the same code."""
    return all(
        getattr(made, name) == getattr(value, name)
        for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
    )
