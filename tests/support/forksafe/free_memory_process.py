"""Frees a lot of its heap, forks as a snapshot does, and uses the freed memory; prints the results.

    python free_memory_process.py writer | copy | growth

`writer`: how many pages it had to copy to write to all of that memory. `copy`: the contents in a fork, before and
after it has got memory in its place, and whether it and a fork of its own can use the heap. `growth`: bytes by which
fifty forks have made the heap grow.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys

from sharing_process import forked

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.snapshots.memory import FreeMemory, Withheld

BLOCK = 64 * 1024
"""Bytes: too few for the C library to ask the kernel for each by itself."""

BLOCKS = 512
KEPT = 100, 101, 300
"""Blocks that stay allocated: three stretches are free, one of them at the heap's end."""


def freed_heap() -> tuple[FreeMemory, list[int]]:
    """The free memory and the addresses of the blocks; the blocks that stay allocated are full of ones."""
    free = FreeMemory()
    blocks = [libc.allocate(BLOCK) for _ in range(BLOCKS)]
    stopper = libc.allocate(BLOCK)  # otherwise the last ones would go back to the kernel
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for number, block in enumerate(blocks):
        if number not in KEPT:
            libc.release(block)
    assert stopper
    return free, blocks


def is_right(blocks: list[int]) -> bool:
    return all(ctypes.string_at(blocks[number], BLOCK) == b"\1" * BLOCK for number in KEPT)


def use_again() -> None:
    blocks = [libc.allocate(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 2, BLOCK)
    for block in blocks:
        libc.release(block)


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def writer() -> int:
    free, blocks = freed_heap()
    withheld = free.withhold()
    with forked():
        withheld.give_back()
        before = faults()
        use_again()
        taken = faults() - before
    assert is_right(blocks)
    return taken


def copy() -> list[bool]:
    free, blocks = freed_heap()
    withheld = free.withhold()
    answer, ask = os.pipe()
    if (pid := os.fork()) == 0:
        lacks = not any(map(is_mapped, blocks[110:290]))
        withheld.make_up()
        has = all(map(is_mapped, blocks[110:290]))
        use_again()
        os.write(ask, json.dumps([lacks, has, is_right(blocks), is_right_in_a_fork(free, blocks)]).encode())
        os._exit(0)
    withheld.give_back()
    os.waitpid(pid, 0)
    found: list[bool] = json.loads(os.read(answer, 1000))
    return found


def is_right_in_a_fork(free: FreeMemory, blocks: list[int]) -> bool:
    """Checked in a process that descends from a copy and has used the heap."""
    withheld = free.withhold()
    assert withheld.size
    if (pid := os.fork()) == 0:
        withheld.make_up()
        use_again()
        os._exit(not is_right(blocks))
    withheld.give_back()
    return os.waitpid(pid, 0)[1] == 0


def is_mapped(address: int) -> bool:
    with open("/proc/self/maps") as lines:
        regions = [line.split()[0].split("-") for line in lines]
    return any(int(start, 16) <= address < int(end, 16) for start, end in regions)


def growth() -> int:
    free, _ = freed_heap()
    free.withhold().give_back()  # it may leave a marker of the end of the free memory for the next time
    before = libc.heap_end()
    sizes = {measured(free.withhold()) for _ in range(50)}
    assert min(sizes) >= (BLOCKS - 2 * 32) * BLOCK, sizes
    return libc.heap_end() - before


def measured(withheld: Withheld) -> int:
    size = withheld.size
    withheld.give_back()
    return size


if __name__ == "__main__":
    print(json.dumps({"writer": writer, "copy": copy, "growth": growth}[sys.argv[1]]()))
