"""Functions of the user's files by what they say: a change of one of them can be told from a change of another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.instructions import said_anywhere

__builtins__ = BUILTINS


def digests_of(path: str) -> dict[str, str]:
    """By qualified name, `<module>` for what runs on import; empty for a file that is no Python, or not there.

    What is defined inside is left out of a digest, since it counts by itself if it is run. So are line numbers:
    moving a function is no change of it. Definitions of one name, such as lambdas, have one digest together.
    """
    try:
        whole = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    said: dict[str, list[str]] = {}
    for code in _all(whole):
        said.setdefault(code.co_qualname, []).append(_said(code))
    return {
        name: hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
        for name, parts in said.items()
    }


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if type(const) is CodeType:
            yield from _all(const)


def _said(code: CodeType) -> str:
    said, held = said_anywhere(code)
    constants = [_constant(each) for each in held]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return repr((said, code.co_exceptiontable, constants, names, shape))


def _constant(value: object) -> str:
    """Sets in an order of their own: that of their hashes differs from process to process."""
    if type(value) is CodeType:
        return f"code {value.co_qualname}"
    if type(value) is frozenset:
        return f"set {sorted(map(_constant, value))}"
    return f"{type(value).__name__} {value!r}"
