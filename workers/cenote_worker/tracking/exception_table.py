"""Where code goes on after an exception, as the table that the compiler writes beside it says.

Its format is that of CPython's `InternalDocs/exception_handling.md`, the same since Python 3.11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from opcode import opmap
from types import CodeType
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_RERAISE = opmap["RERAISE"]
_PUTTING_BACK: Final = frozenset(
    code for name, code in opmap.items() if name in ("SWAP", "POP_TOP") or name.startswith("STORE_FAST")
)
"""What a comprehension without a frame of its own does when it fails, before the exception goes on."""

_OF_AWAITING: Final = opmap.get("CLEANUP_THROW", -1)
"""What was awaited has ended by the exception, which is told as if it had ended by itself."""


def catches(code: CodeType, steps: Sequence[tuple[int, int, int]]) -> bool:
    """Whether an exception may take the code from one of its statements to another. steps: its `instructions`.

    From Python 3.12 on comprehensions and `await` have entries of their own, which never do.
    """
    return any(_goes_on(steps, target) for target in set(_targets(code.co_exceptiontable)))


def _goes_on(steps: Sequence[tuple[int, int, int]], target: int) -> bool:
    handler = (operation for operation, _, offset in steps if offset >= target)
    first = next(dropwhile(_PUTTING_BACK.__contains__, handler), -1)
    return first not in (_RERAISE, _OF_AWAITING)


def _targets(table: bytes) -> Iterator[int]:
    """Offsets of handlers. An entry is four numbers: start, length, target, and what the stack is like then."""
    numbers = _numbers(table)
    for _ in numbers:
        next(numbers)
        yield 2 * next(numbers)
        next(numbers)


def _numbers(table: bytes) -> Iterator[int]:
    """Six bits a byte, the highest ones first; another bit says that there are more."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 0x3F
        if not byte & 0x40:
            yield value
            value = 0
