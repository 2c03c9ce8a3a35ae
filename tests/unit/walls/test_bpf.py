"""The assembler: an assembled program decides like its parts."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.walls.bpf_machine import run

from cenote_security.walls.kernel import bpf

ARCH = 1


def verdict(code: bpf.Code, number: int) -> int:
    return run(bpf.assemble((*bpf.load(0), *code)), number, ARCH)


@given(
    starts=st.sets(st.integers(1, 2**32 - 1), max_size=300),
    number=st.integers(0, 2**32 - 1),
    near=st.booleans(),
)
def test_search_finds_the_range_of_any_number(starts: set[int], number: int, near: bool) -> None:
    """Binary search in BPF code gives the result of bisect, far jumps included."""
    edges = [0, *sorted(starts)]
    if near:
        number = edges[number % len(edges)]
    code = bpf.search([(start, bpf.give(index)) for index, start in enumerate(edges)])
    assert bisect_right(edges, number) - 1 == verdict(code, number)


@pytest.mark.parametrize("length", [1, 255, 256, 1000])
def test_when_skips_blocks_of_any_length(length: int) -> None:
    """A conditional jump reaches 255 instructions; longer blocks are skipped all the same."""
    then = (*bpf.load(0) * (length - 1), *bpf.give(1))
    code = (*bpf.when(bpf.JUMP_IF_EQUAL, 7, then), *bpf.give(0))
    assert (1, 0) == (verdict(code, 7), verdict(code, 8))


def test_among_matches_each_value_and_no_other() -> None:
    """Any of the values runs the block."""
    code = (*bpf.among((3, 5), bpf.give(1)), *bpf.give(0))
    assert [0, 0, 0, 1, 0, 1, 0] == [verdict(code, number) for number in range(7)]


def test_the_longest_program_is_4096_instructions() -> None:
    """One more is refused here, before the kernel refuses it."""
    assert 8 * 4096 == len(bpf.assemble(bpf.give(0) * 4096))
    with pytest.raises(ValueError, match="4097"):
        bpf.assemble(bpf.give(0) * 4097)
