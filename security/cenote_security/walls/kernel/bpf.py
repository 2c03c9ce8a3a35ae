"""A small assembler for classic BPF, the language of seccomp filters. Pure: values in, bytes out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

LOAD_WORD = 0x20  # accumulator = 32 bits of seccomp_data at offset k
JUMP = 0x05
JUMP_IF_EQUAL = 0x15
JUMP_IF_AT_LEAST = 0x35
JUMP_IF_ANY_BIT = 0x45
AND = 0x54
RETURN = 0x06

MAX_INSTRUCTIONS = 4096
"""BPF_MAXINSNS: the kernel takes no longer program."""

_MAX_SHORT_JUMP = 255


class Instruction(NamedTuple):
    """One `struct sock_filter`. jt, jf: how many instructions to skip when the test holds, or does not."""

    code: int
    k: int
    jt: int = 0
    jf: int = 0


Code = tuple[Instruction, ...]


def load(offset: int) -> Code:
    return (Instruction(LOAD_WORD, offset),)


def keep_bits(mask: int) -> Code:
    return (Instruction(AND, mask),)


def give(verdict: int) -> Code:
    return (Instruction(RETURN, verdict),)


def when(test: int, value: int, then: Code) -> Code:
    """Run `then` if the accumulator passes `test` against `value`, else go on after it.

    `then` must end in a return: it is the only way that both ways stay apart.
    """
    if len(then) <= _MAX_SHORT_JUMP:
        return (Instruction(test, value, 0, len(then)), *then)
    return (Instruction(test, value, 0, 1), Instruction(JUMP, 1), Instruction(JUMP, len(then)), *then)


def among(values: Sequence[int], then: Code) -> Code:
    """Run `then` if the accumulator equals one of `values`, else go on after it."""
    return tuple(step for value in values for step in when(JUMP_IF_EQUAL, value, then))


def search(ranges: Sequence[tuple[int, Code]]) -> Code:
    """Binary search of the accumulator over ranges, each `(first value, code that ends in a return)`.

    The first range must begin at 0. Depth counts where a filter runs on every system call, as it does before Linux
    5.11: this is log2(n) tests.
    """
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    return (
        *when(JUMP_IF_AT_LEAST, ranges[middle][0], search(ranges[middle:])),
        *search(ranges[:middle]),
    )


def assemble(code: Code) -> bytes:
    """The program as the kernel reads it. Raises ValueError when it is too long."""
    if len(code) > MAX_INSTRUCTIONS:
        raise ValueError(f"{len(code)} instructions are more than the kernel's {MAX_INSTRUCTIONS}")
    return b"".join(struct.pack("=HBBI", step.code, step.jt, step.jf, step.k) for step in code)
