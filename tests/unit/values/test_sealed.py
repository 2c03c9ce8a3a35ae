"""Sealed memory: one copy in, private maps out, no trust in a descriptor from a jail."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

import pytest

from cenote_security.errors import MalformedValueError
from cenote_security.sealed_memory import ALIGNMENT, BufferLayout, SealedMemory

MFD_HUGETLB = 0x4
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def memfd(content: bytes = b"abc", seals: int = 0) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_pieces_arrive_in_order() -> None:
    """Pieces are written and read as one region."""
    with SealedMemory.create([b"ab", bytearray(b""), memoryview(b"cd")]) as memory:
        assert (4, b"abcd") == (memory.size, bytes(memory.map()))


def test_more_pieces_than_one_system_call_takes() -> None:
    """The kernel accepts 1024 pieces per call; any number is written."""
    with SealedMemory.create([b"x"] * 5000) as memory:
        assert b"x" * 5000 == bytes(memory.map())


def test_empty_memory_maps_to_an_empty_view() -> None:
    """Zero bytes cannot be mapped by the kernel, but are a valid region."""
    with SealedMemory.create([]) as memory:
        assert b"" == bytes(memory.map())


def test_a_map_is_writable_and_private() -> None:
    """A write through one map is seen by no other map."""
    with SealedMemory.create([b"abc"]) as memory:
        first, second = memory.map(), memory.map()
        first[0] = ord("z")
        assert (b"zbc", b"abc") == (bytes(first), bytes(second))


def test_a_map_outlives_the_descriptor() -> None:
    """Closing the memory leaves what was mapped."""
    memory = SealedMemory.create([b"abc"])
    view = memory.map()
    memory.close()
    assert b"abc" == bytes(view)


def test_created_memory_cannot_be_changed() -> None:
    """Neither content nor size can change once it is created, nor can seals be added."""
    with SealedMemory.create([b"abc"]) as memory:
        for change in (
            lambda: os.write(memory.fileno(), b"x"),
            lambda: os.ftruncate(memory.fileno(), 1),
            lambda: os.ftruncate(memory.fileno(), 10),
            lambda: mmap.mmap(memory.fileno(), 3),
            lambda: fcntl.fcntl(memory.fileno(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
        ):
            with pytest.raises(PermissionError):
                change()


def test_close_is_final_and_idempotent() -> None:
    """After close there is no descriptor, and a second close does not affect a reused number."""
    memory = SealedMemory.create([b"abc"])
    memory.close()
    memory.close()
    with pytest.raises(ValueError, match="closed"):
        memory.fileno()


def test_a_duplicate_has_its_own_life() -> None:
    """Closing one owner leaves the other."""
    memory = SealedMemory.create([b"abc"])
    twin = memory.duplicate()
    memory.close()
    with twin:
        assert b"abc" == bytes(twin.map())


def test_received_memory_reads_as_sent() -> None:
    """Sealed memory of the allowed size is accepted, at the limit too."""
    with SealedMemory.create([b"abc"]) as sent, SealedMemory.receive(os.dup(sent.fileno()), 3) as memory:
        assert b"abc" == bytes(memory.map())


@pytest.mark.parametrize(
    "seals",
    [0, SEALS & ~fcntl.F_SEAL_SHRINK, SEALS & ~fcntl.F_SEAL_GROW, SEALS & ~fcntl.F_SEAL_WRITE],
    ids=["none", "may shrink", "may grow", "may be written"],
)
def test_memory_that_can_change_is_refused_and_closed(seals: int) -> None:
    """A sender that keeps any power over the memory is refused; the descriptor does not leak."""
    fd = memfd(seals=seals)
    with pytest.raises(MalformedValueError, match="not sealed"):
        SealedMemory.receive(fd, 100)
    assert not is_open(fd)


def test_one_byte_too_many_is_refused() -> None:
    """A size one past the limit is refused."""
    with pytest.raises(MalformedValueError, match="at most 2"):
        SealedMemory.receive(memfd(b"abc", SEALS), 2)


def test_a_pipe_is_refused() -> None:
    """A descriptor that is not memory is refused."""
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(MalformedValueError, match="not memory"):
        SealedMemory.receive(reader, 100)
    assert not is_open(reader)


def test_a_file_is_refused(tmp_path: os.PathLike[str]) -> None:
    """A regular file cannot be sealed, so its owner could shrink it under the reader."""
    fd = os.open(os.path.join(tmp_path, "f"), os.O_RDWR | os.O_CREAT)
    with pytest.raises(MalformedValueError, match="not"):
        SealedMemory.receive(fd, 100)
    assert not is_open(fd)


def test_a_path_descriptor_of_sealed_memory_is_refused() -> None:
    """O_PATH names memory without the right to read it."""
    source = memfd(b"abc", SEALS)
    fd = os.open(f"/proc/self/fd/{source}", os.O_PATH)
    os.close(source)
    with pytest.raises(MalformedValueError):
        SealedMemory.receive(fd, 100)


def test_a_write_only_descriptor_is_refused() -> None:
    """Sealed memory opened write-only cannot be mapped."""
    source = memfd(b"abc")
    fd = os.open(f"/proc/self/fd/{source}", os.O_WRONLY)
    fcntl.fcntl(source, fcntl.F_ADD_SEALS, SEALS)
    os.close(source)
    with pytest.raises(MalformedValueError, match="cannot be read"):
        SealedMemory.receive(fd, 100)


def test_huge_page_memory_is_refused() -> None:
    """Private writes to huge-page memory can end in SIGBUS when the machine has no huge page left."""
    try:
        fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | MFD_HUGETLB)
    except OSError:
        pytest.skip("this kernel has no huge-page memory")
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(MalformedValueError, match="ordinary pages"):
        SealedMemory.receive(fd, 100)


def test_memory_with_holes_is_refused() -> None:
    """Reading a hole through a mapping allocates the page: a jail could fill its receiver's memory."""
    whole, page = memfd(bytes(3 * mmap.PAGESIZE)), mmap.PAGESIZE
    os.posix_fallocate(whole, 3 * page, page)
    holed = memfd()
    os.ftruncate(holed, 4 * page)
    for fd in (whole, holed):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with SealedMemory.receive(whole, max_size=4 * page) as memory:
        assert 4 * page == memory.size
    with pytest.raises(MalformedValueError, match="holes"):
        SealedMemory.receive(holed, max_size=4 * page)
    assert not is_open(holed)


def keeping(fd: int, offset: int, size: int) -> None:
    """Pages of a file, wherever its end is."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert 0 == libc.fallocate(fd, 1, ctypes.c_long(offset), ctypes.c_long(size)), ctypes.get_errno()


@pytest.mark.parametrize("size", [0, 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 5])
def test_pages_beyond_the_end_are_given_back(size: int) -> None:
    """They count in no limit of the sender's after its end, and stay as long as the receiver has the memory."""
    data = os.urandom(size)
    fd = memfd(data)
    keeping(fd, size, 64 * mmap.PAGESIZE)
    assert os.fstat(fd).st_blocks * 512 >= 64 * mmap.PAGESIZE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with SealedMemory.receive(fd, size) as memory:
        assert os.fstat(memory.fileno()).st_blocks * 512 <= size + mmap.PAGESIZE
        assert data == bytes(memory.map())


def test_pages_beyond_the_end_that_stay_are_refused() -> None:
    """Through a read-only descriptor nothing can be freed. Without such pages it is accepted."""
    for beyond in (0, mmap.PAGESIZE):
        fd = memfd(b"x")
        if beyond:
            keeping(fd, mmap.PAGESIZE, beyond)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        os.close(fd)
        if beyond:
            with pytest.raises(MalformedValueError, match="beyond its end"):
                SealedMemory.receive(reading, 1)
            assert not is_open(reading)
        else:
            SealedMemory.receive(reading, 1).close()


def test_pages_beyond_the_end_hide_no_hole() -> None:
    """As many as the missing ones before it would compensate for them."""
    page = mmap.PAGESIZE
    fd = memfd()
    os.ftruncate(fd, 4 * page)
    keeping(fd, 4 * page, 4 * page)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(MalformedValueError, match="holes"):
        SealedMemory.receive(fd, 4 * page)


def test_a_layout_aligns_and_its_pieces_follow_it() -> None:
    """Every buffer starts on a cache line, and the table gives its place."""
    buffers = [b"a" * 5, b"", b"b" * 64, b"c"]
    layout = BufferLayout.of(len(b) for b in buffers)
    region = b"".join(layout.pieces(buffers))
    assert layout.size == len(region)
    assert all(start % ALIGNMENT == 0 for start, _ in layout.table)
    assert buffers == [region[start : start + length] for start, length in layout.table]
