"""Code objects between processes: bytecode of one version of Python has undefined behaviour in another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_HERE = sys.version_info[:2]


class ForeignCodeError(TypeError):
    """Functions and classes come from another version of Python than the one that should run them."""

    def __init__(self, theirs: tuple[int, int]) -> None:
        super().__init__(theirs)
        self.theirs = theirs

    def __str__(self) -> str:
        there, here = (".".join(map(str, version)) for version in (self.theirs, _HERE))
        return (
            f"it holds functions or classes of Python {there}, which Python {here} cannot run; use the same version "
            f"on both sides, define them in a cell, or keep them in the client with Function(..., host=True)"
        )


def reduced_code(code: CodeType) -> tuple[Any, ...]:
    """A code object as any pickler may write it, for its own version of Python.

    Replaces cloudpickle's reduction, which from 3.1.3 on leaves out the file: tracebacks and `inspect` need it for
    the lines of a function, and the tracker for its owner. As there, tables are copied: other references to one do
    not affect what is written, so equal code has equal bytes.
    """
    return CodeType, (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_nlocals,
        code.co_stacksize,
        code.co_flags,
        code.co_code,
        code.co_consts,
        _copied(code.co_names),
        _copied(code.co_varnames),
        code.co_filename,
        "".join(code.co_name),
        code.co_qualname,
        code.co_firstlineno,
        code.co_linetable,
        code.co_exceptiontable,
        _copied(code.co_freevars),
        _copied(code.co_cellvars),
    )


def _copied(table: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([*table])


def of_this_version(code: CodeType) -> tuple[Any, ...]:
    """The same, accepted only by this version of Python."""
    make, arguments = reduced_code(code)
    return made_here, (_HERE, make, *arguments)


def made_here(version: tuple[int, int], make: Callable[..., CodeType], *arguments: Any) -> CodeType:
    """Raises ForeignCodeError."""
    if version != _HERE:
        raise ForeignCodeError(version)
    return make(*arguments)
