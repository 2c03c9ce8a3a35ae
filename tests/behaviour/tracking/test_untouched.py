"""Digests that are reused until a page is written to."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.trace import Location
from cenote_worker.jail.tracking.descriptions import known_digests as module
from cenote_worker.jail.tracking.descriptions.known_digests import LARGE, KnownDigests

DIGEST = bytes(range(16))
"""A digest of no data: hashing gives a different one."""


def mapped(size: int = LARGE) -> memoryview:
    """Restored memory, between other parts of the same mapping."""
    with SealedMemory.create([b"\1" * 4096, b"\2" * size, b"\3" * 4096]) as memory:
        return memory.map()[4096:-4096]


def learnt(part: memoryview) -> tuple[KnownDigests, np.ndarray[Any, Any]]:
    untouched = KnownDigests()
    untouched.learn([(part, DIGEST)])
    return untouched, np.frombuffer(part, "u1")


def test_memory_that_was_read_is_known() -> None:
    """Also once all of its pages are resident, and some of its neighbour's were written to."""
    part = mapped()
    untouched, array = learnt(part)
    assert DIGEST.hex() == untouched.digest(array, array.nbytes)
    assert 2 * LARGE == int(array.sum())
    assert DIGEST.hex() == untouched.digest(array, array.nbytes)


@pytest.mark.parametrize("place", [0, LARGE // 2, LARGE - 1])
def test_one_byte_written_is_seen(place: int) -> None:
    """Even an equal one: then the memory is hashed."""
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
    """The kernel reuses an address at once. The new pages belong to a file, too, and to another one."""
    part = mapped()
    untouched, array = learnt(part)
    place = array.__array_interface__["data"][0]
    del part, array
    after = np.frombuffer(mapped(), "u1")
    if after.__array_interface__["data"][0] != place:
        pytest.skip("the kernel has put it elsewhere")
    assert "" == untouched.digest(after, after.nbytes)


def test_small_parts_and_memory_of_its_own_are_passed_over() -> None:
    """Asking the kernel would cost more than it saves, or give no information."""
    small, array = learnt(mapped(LARGE - 1))
    assert "" == small.digest(array, array.nbytes)
    own, array = learnt(memoryview(bytearray(LARGE)))
    assert "" == own.digest(array, array.nbytes)


def test_without_a_page_map_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in gVisor."""
    monkeypatch.setattr(module, "_PAGEMAP", "/proc/self/none")
    untouched, array = learnt(mapped())
    assert "" == untouched.digest(array, array.nbytes)


@contextmanager
def a_copy() -> Iterator[None]:
    """Another process that shares the memory of this one, and is idle."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(there)
        os.read(here, 1)
        os._exit(0)
    os.close(here)
    try:
        yield
    finally:
        os.close(there)
        os.waitpid(pid, 0)


def hashed(size: int = 4 * LARGE) -> tuple[KnownDigests, np.ndarray[Any, Any]]:
    untouched, array = KnownDigests(), np.arange(size // 8).view("u1")
    own = array.base
    assert own is not None
    untouched.hashed(array, array.nbytes, own, "digest")
    return untouched, array


def test_an_array_is_known_while_a_copy_shares_it() -> None:
    untouched, array = hashed()
    assert "" == untouched.digest(array, array.nbytes)
    untouched, array = hashed()
    with a_copy():
        assert array.sum()
        assert "digest" == untouched.digest(array, array.nbytes)
    assert "" == untouched.digest(array, array.nbytes)


@pytest.mark.parametrize("place", [0, 2 * LARGE, 4 * LARGE - 1])
def test_a_byte_of_an_array_written_is_seen(place: int) -> None:
    untouched, array = hashed()
    with a_copy():
        array[place] = 2
        assert "" == untouched.digest(array, array.nbytes)


def test_what_was_written_is_not_known_because_it_is_shared_again() -> None:
    """By a process that the step itself has made: its pages then look unwritten."""
    untouched, array = hashed()
    with a_copy():
        assert "digest" == untouched.digest(array, array.nbytes)
        array[5] = 2
        with a_copy():
            assert "" == untouched.digest(array, array.nbytes)


def test_what_ran_between_a_look_and_a_copy_may_have_written() -> None:
    untouched, array = hashed()
    untouched.step()
    with a_copy():
        assert "" == untouched.digest(array, array.nbytes)


def test_another_array_at_the_same_place_is_another_one() -> None:
    """All arrays share the zero page until they are written to."""
    untouched, array = hashed()
    with a_copy():
        place, size = array.__array_interface__["data"][0], array.nbytes
        del array
        other = np.zeros(size, "u1")
        if other.__array_interface__["data"][0] != place:
            pytest.skip("the C library has put it elsewhere")
        assert 0 == other.sum()
        assert "" == untouched.digest(other, size)


def test_a_view_of_memory_that_others_may_write_to_is_never_known() -> None:
    """No page shows writes by another process, or by an object that is no array."""
    untouched, memory = KnownDigests(), mmap.mmap(-1, LARGE)
    array = np.frombuffer(memory, "u1")
    untouched.hashed(array, array.nbytes, array, "digest")
    with a_copy():
        assert "" == untouched.digest(array, array.nbytes)


def test_handed_over_memory_is_hashed_once() -> None:
    """Until it is written to, whether or not there is a copy."""
    untouched, array = KnownDigests(), np.frombuffer(mapped(), "u1")
    untouched.hashed(array, array.nbytes, array, "digest")
    untouched.step()
    assert "digest" == untouched.digest(array, array.nbytes)
    array.base[7] = 9  # type: ignore[index]
    assert "" == untouched.digest(array, array.nbytes)


READS = ("m = len(a)", "s = a.shape", "t = a[5:9].sum()", "u = b.c.sum()", "v = b['c'].max()", "x = 1")
WRITES = {"a[3] = 7": "name:a", "b.loc[3, 'c'] = 7": "name:b", "a += 1": "name:a", "n = a.fill(0)": "name:a"}


@pytest.mark.usefixtures("alone")
def test_a_step_that_reads_hashes_nothing_and_one_that_writes_is_seen(in_process: Callable) -> None:
    """Whatever it reads; hashed bytes are counted, and versions are those of a full look.

    Looked at three times at most: the kernel may merge pages (khugepaged), and they are this process's then.
    """
    steps = in_process()
    steps.good(f"import numpy, pandas\na = numpy.ones({LARGE})\nb = pandas.DataFrame({{'c': a + 1, 'd': a}})")
    untouched = steps.tracker._album.untouched

    def hashes_nothing(name: str) -> bool:
        before = untouched.bytes_hashed
        for read in READS:
            assert name not in steps.good(read).writes, read
        return before == untouched.bytes_hashed

    for write, name in WRITES.items():
        for _ in range(3):
            with a_copy():
                if not hashes_nothing(name):
                    continue
                before = untouched.bytes_hashed
                assert name in steps.good(write).writes
                assert before < untouched.bytes_hashed
                break
        else:
            pytest.fail(f"reads before {write} hash memory")
        (known,) = steps.tracker.versions([Location(name)]).values()
        untouched.forget()
        steps.tracker.forget()
        assert (known,) == tuple(steps.tracker.versions([Location(name)]).values())
