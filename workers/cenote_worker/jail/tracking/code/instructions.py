"""The instructions of code one by one, and where code continues after an exception.

The table of exceptions is in the format of CPython's `InternalDocs/exception_handling.md`, the same since Python
3.11.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from opcode import hasconst, opmap
from types import CodeType
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_EXTENDED = opmap["EXTENDED_ARG"]
_CACHE = opmap["CACHE"]
_BINDS = opmap["STORE_NAME"]
_OF_CONSTANTS: Final = frozenset(hasconst)
_END: Final = (_CACHE, 0, 0)
_OF_THE_TEXT: Final = frozenset(
    ("__firstlineno__", "__static_attributes__") if sys.version_info >= (3, 13) else ()
)
"""Names that class bodies bind since Python 3.13: their first line, and the attributes that their methods set, in an
order that differs between processes."""


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
    """The content of the instructions, and constants; for a class body without data about its own source.

    A line number may be a constant that the body uses for another purpose too. So instructions come without the
    indexes of their constants then, and the constants in the order of use.
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


_RERAISE = opmap["RERAISE"]
_PUTTING_BACK: Final = frozenset(
    code for name, code in opmap.items() if name in ("SWAP", "POP_TOP") or name.startswith("STORE_FAST")
)
"""Instructions of an inlined comprehension that fails, before the exception continues."""

_OF_AWAITING: Final = opmap.get("CLEANUP_THROW", -1)
"""The awaited object has ended with the exception, which is handled as if it had ended normally."""


def catches(code: CodeType, steps: Sequence[tuple[int, int, int]]) -> bool:
    """Whether an exception may move execution from one of its statements to another. steps: its `instructions`.

    Since Python 3.12 comprehensions and `await` have entries of their own, which never do.
    """
    return any(_goes_on(steps, target) for target in set(_targets(code.co_exceptiontable)))


def _goes_on(steps: Sequence[tuple[int, int, int]], target: int) -> bool:
    handler = (operation for operation, _, offset in steps if offset >= target)
    first = next(dropwhile(_PUTTING_BACK.__contains__, handler), -1)
    return first not in (_RERAISE, _OF_AWAITING)


def _targets(table: bytes) -> Iterator[int]:
    """Offsets of handlers. An entry is four numbers: start, length, target, and the stack depth."""
    numbers = _numbers(table)
    for _ in numbers:
        next(numbers)
        yield 2 * next(numbers)
        next(numbers)


def _numbers(table: bytes) -> Iterator[int]:
    """Six bits a byte, the highest ones first; another bit marks continuation."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 0x3F
        if not byte & 0x40:
            yield value
            value = 0
