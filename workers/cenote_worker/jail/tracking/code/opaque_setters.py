"""Calls by which code sets something inside a library that cannot be inspected: a registry, a configuration."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final

from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.descriptions.classes import is_class, is_module, module_of, mro
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SETTING: Final = (
    "set", "reset_", "restore_", "register", "unregister", "deregister", "enable", "disable", "install", "configure",
    "reconfigure", "add_", "addaudithook", "use_", "freeze", "unfreeze", "switch_", "init_", "clear_", "uninstall",
    "pickle", "umask", "listen", "load_profile", "textdomain", "bindtextdomain", "threadpool_limits",
)  # fmt: skip
"""Beginnings of names of functions that set something; `pickle` is that of `copyreg`."""

_SETTERS: Final = frozenset(
    (
        "start",
        "stop",
        "stack_size",
        "field_size_limit",
        "nice",
        "tzset",
        "purge",
        "sched_setaffinity",
        "overload",
    )
)
"""Whole names of more such functions: those of `tracemalloc`, `threading`, `csv`, `os`, `time` and `typing`."""

_PATCHING: Final = frozenset(("start", "stop"))
"""Methods of a patcher of `unittest.mock`: it sets something on the object that its text named."""

_MOVING: Final = frozenset(
    ("open", "pipe", "pipe2", "dup", "dup2", "close", "read", "readv", "pread", "write", "writev", "pwrite",
     "lseek", "ftruncate", "sendfile", "copy_file_range", "openpty", "memfd_create", "eventfd", "eventfd_read",
     "eventfd_write", "preadv", "pwritev", "splice", "timerfd_create", "pidfd_open")
)  # fmt: skip
"""Functions of `os` that open, close and move descriptors: to a program those are numbers."""

_LOOKED_AT: Final = frozenset(
    ("numpy", "matplotlib", "seaborn", "decimal", "_decimal", "warnings", "_warnings", "logging", "locale", "_locale",
     "random", "_random", "pickle", "_pickle", "cloudpickle", "dill", "sklearn", "duckdb", "_duckdb", "__main__",
     "cenote_worker")
)  # fmt: skip
"""Libraries whose settings are hidden state, and those whose functions of such names set nothing."""

_OPTIONS: Final = frozenset(("set_option", "reset_option", "set_eng_float_format", "set_module"))
"""Functions of pandas that set options, which are also hidden state."""

FEATURES: Final = frozenset(
    ("nested_scopes", "generators", "division", "absolute_import", "with_statement", "print_function",
     "unicode_literals", "barry_as_FLUFL", "generator_stop", "annotations")
)  # fmt: skip
"""Names that can be imported from `__future__`."""

_modules = sys.modules


def sets_by_name(function: str) -> bool:
    """Whether its name is that of a function that sets something."""
    return function.startswith(_SETTING) or function in _SETTERS


def libraries_set(
    facts: Facts, packages: frozenset[str], namespace: Mapping[str, object]
) -> dict[str, ModuleType]:
    """Libraries in which the code may set something, by name. A user's own function may have any name: functions of
    libraries are among the attributes, since they are imported as such, or known by their own names."""
    words = {word for word in facts.attributes if word.startswith(_SETTING)} - _OPTIONS
    words |= facts.attributes & _SETTERS
    moving = facts.attributes & _MOVING
    if not words and not moving:
        return {}
    found = dict(_that_have(words, packages | facts.imports))
    for chain in facts.chains:
        first, *inner = chain.removesuffix("()").split(".")
        for module in _homes(namespace.get(first)) if inner and inner[-1] in words | moving else ():
            if inner[-1] in words or module is os:
                found[module.__name__.partition(".")[0]] = module
    if "unittest" in packages and words & _PATCHING:
        found["unittest"] = _modules["unittest"]
    if "register" in words and "matplotlib" in found:
        return found
    return {name: module for name, module in found.items() if name not in _LOOKED_AT}


def _that_have(words: set[str], libraries: frozenset[str]) -> Iterator[tuple[str, ModuleType]]:
    for library in libraries:
        module = _modules.get(library)
        if type(module) is ModuleType and not words.isdisjoint(vars(module)):
            yield library.partition(".")[0], module


def _homes(value: object) -> Iterator[ModuleType]:
    """A module, or the modules of a class and its bases: what is called on one is a library's function."""
    found: list[object] = [value]
    if value is not None and is_class(value):
        found = [_modules.get(module_of(base)) for base in mro(value)]
    for each in found:
        if isinstance(each, ModuleType) and is_module(each) and each is not builtins:
            yield each
