"""The memory map of this process."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from cenote_worker.jail.process import proc_info
from cenote_worker.jail.process.proc_info import MemoryMap, shared_files

UNKNOWN_REQUEST = 0xC06866FF


def inode_of_new(path: Path) -> int:
    path.write_bytes(bytes(100))
    return path.stat().st_ino


@pytest.mark.parametrize("kernel", ["looks by itself", "tells all"])
def test_only_memory_that_writes_to_files_is_shared(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before Linux 6.11, and gVisor's, lack this request."""
    if kernel == "tells all":
        monkeypatch.setattr(proc_info, "_PROCMAP_QUERY", UNKNOWN_REQUEST)
    written, read, private = (inode_of_new(tmp_path / name) for name in ("written", "read", "private"))
    with (
        (tmp_path / "written").open("r+b") as first,
        (tmp_path / "read").open("rb") as second,
        (tmp_path / "private").open("r+b") as third,
        mmap.mmap(first.fileno(), 0),
        mmap.mmap(second.fileno(), 0, access=mmap.ACCESS_READ),
        mmap.mmap(third.fileno(), 0, access=mmap.ACCESS_COPY),
    ):
        assert written in shared_files()
        assert shared_files().isdisjoint({read, private})
    assert written not in shared_files()


def test_both_ways_to_look_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """On all existing regions, several of them adjacent."""
    with mmap.mmap(-1, 1 << 16), mmap.mmap(-1, 1 << 16):
        found = shared_files()
        monkeypatch.setattr(proc_info, "_PROCMAP_QUERY", UNKNOWN_REQUEST)
        assert found == shared_files()


def test_files_are_told_by_inode_and_path(tmp_path: Path) -> None:
    inode = inode_of_new(tmp_path / "file")
    with (tmp_path / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        files = MemoryMap().files()
    assert files is not None
    assert inode in files[0]
    assert str(tmp_path / "file") in files[1]
