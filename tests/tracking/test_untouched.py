"""Digests that are taken for granted, until a page is written to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cenote_security.sealed import SealedMemory
from cenote_worker.tracking import untouched as module
from cenote_worker.tracking.untouched import LARGE, Untouched

DIGEST = bytes(range(16))
"""Of nothing: whoever hashes gets another."""


def mapped(size: int = LARGE) -> memoryview:
    """Restored memory, between other parts of the same mapping."""
    with SealedMemory.create([b"\1" * 4096, b"\2" * size, b"\3" * 4096]) as memory:
        return memory.map()[4096:-4096]


def learnt(part: memoryview) -> tuple[Untouched, np.ndarray[Any, Any]]:
    untouched = Untouched()
    untouched.learn([(part, DIGEST)])
    return untouched, np.frombuffer(part, "u1")


def test_memory_that_was_read_is_known() -> None:
    """Also once all of its pages are there, and some of its neighbour's were written to."""
    part = mapped()
    untouched, array = learnt(part)
    assert DIGEST.hex() == untouched.digest(array, array.nbytes)
    assert 2 * LARGE == int(array.sum())
    assert DIGEST.hex() == untouched.digest(array, array.nbytes)


@pytest.mark.parametrize("place", [0, LARGE // 2, LARGE - 1])
def test_one_byte_written_is_seen(place: int) -> None:
    """Even one that is what it was: then the memory is hashed."""
    part = mapped()
    untouched, array = learnt(part)
    part[place] = 2
    assert "" == untouched.digest(array, array.nbytes)


def test_it_is_known_of_that_memory_alone() -> None:
    part = mapped()
    untouched, array = learnt(part)
    assert "" == untouched.digest(array[:-1], array.nbytes - 1)
    assert "" == untouched.digest(array[1:], array.nbytes)
    assert "" == untouched.digest(array.copy(), array.nbytes)
    assert DIGEST.hex() == untouched.digest(array[:], array.nbytes)


def test_what_is_mapped_where_it_was_is_other_memory() -> None:
    """The kernel gives a place again at once. What lies there then is the file's, too, and of another one."""
    part = mapped()
    untouched, array = learnt(part)
    place = array.__array_interface__["data"][0]
    del part, array
    after = np.frombuffer(mapped(), "u1")
    if after.__array_interface__["data"][0] != place:
        pytest.skip("the kernel has put it elsewhere")
    assert "" == untouched.digest(after, after.nbytes)


def test_small_parts_and_memory_of_its_own_are_passed_over() -> None:
    """Asking the kernel would cost more than it saves, or tell nothing."""
    small, array = learnt(mapped(LARGE - 1))
    assert "" == small.digest(array, array.nbytes)
    own, array = learnt(memoryview(bytearray(LARGE)))
    assert "" == own.digest(array, array.nbytes)


def test_without_a_page_map_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in gVisor."""
    monkeypatch.setattr(module, "_PAGEMAP", "/proc/self/none")
    untouched, array = learnt(mapped())
    assert "" == untouched.digest(array, array.nbytes)
