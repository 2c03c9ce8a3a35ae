"""The instructions of code, one by one, and what they say wherever the code stands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from opcode import hasconst, opmap
from types import CodeType
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_EXTENDED = opmap["EXTENDED_ARG"]
_CACHE = opmap["CACHE"]
_BINDS = opmap["STORE_NAME"]
_OF_CONSTANTS: Final = frozenset(hasconst)
_END: Final = (_CACHE, 0, 0)
_OF_THE_TEXT: Final = frozenset(
    ("__firstlineno__", "__static_attributes__") if sys.version_info >= (3, 13) else ()
)
"""What bodies of classes bind from Python 3.13 on: where they begin, and which attributes their methods set, in an
order that differs from process to process."""


def instructions(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Operation, argument, and offset in the code."""
    raw, extended = code.co_code, 0
    for index in range(0, len(raw), 2):
        operation = raw[index]
        if operation == _EXTENDED:
            extended = (extended | raw[index + 1]) << 8
        elif operation != _CACHE:
            yield operation, raw[index + 1] | extended, index
            extended = 0


def said_anywhere(code: CodeType) -> tuple[object, tuple[object, ...]]:
    """What the instructions say, and constants; for the body of a class without what it says of its own text.

    The number of a line may be a constant that the body has for another purpose too. So instructions come without the
    places of their constants then, and these in the order of their use.
    """
    if _OF_THE_TEXT.isdisjoint(code.co_names):
        return code.co_code, code.co_consts
    said, constants, left = list[tuple[int, int]](), list[object](), set(_OF_THE_TEXT)
    steps = list(instructions(code))
    for (operation, argument, _), (then, index, _) in zip(steps, [*steps[1:], _END], strict=True):
        if operation not in _OF_CONSTANTS:
            said.append((operation, argument))
        elif then == _BINDS and code.co_names[index] in left:
            left.discard(code.co_names[index])
        else:
            said.append((operation, 0))
            constants.append(code.co_consts[argument])
    return said, tuple(constants)
