"""An interpreter for classic BPF as seccomp uses it, to evaluate a filter without a kernel."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def run(program: bytes, number: int, arch: int, arguments: Sequence[int] | None = ()) -> int:
    """The verdict of a filter on a call. arguments: up to six, unsigned 64 bits each.

    None: arbitrary ones. Raises struct.error when the filter reads them.
    """
    data = struct.pack("=II", number, arch)
    if arguments is not None:
        data += struct.pack("=Q6Q", 0, *arguments, *(0,) * (6 - len(arguments)))
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator = 0
    at = 0
    while True:
        code, jump_true, jump_false, k = steps[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x54:
                accumulator &= k
            case 0x05:
                at += k
            case 0x15:
                at += jump_true if accumulator == k else jump_false
            case 0x35:
                at += jump_true if accumulator >= k else jump_false
            case 0x45:
                at += jump_true if accumulator & k else jump_false
            case 0x06:
                return k
            case _:
                raise AssertionError(f"seccomp has no instruction {code:#x}")
