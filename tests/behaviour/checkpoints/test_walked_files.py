"""Files of a working directory that changes while a checkpoint is made of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from cenote_worker.jail.state.checkpoint_files import FoundFile, put, walk

CHURN = """
import os
while True:
    os.makedirs("busy/inner")
    open("busy/inner/file", "w").close()
    os.unlink("busy/inner/file")
    os.removedirs("busy/inner")
"""


def paths(found: Iterable[FoundFile]) -> list[str]:
    return [os.fsdecode(each.message.path) for each in found if not each.refused]


def test_what_goes_meanwhile_was_not_there(tmp_path: Path) -> None:
    """A file, a folder that was reported already, and one that was not."""
    for name in ("a", "b/c", "d", "e/f"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = walk(tmp_path)
    first = [next(found), next(found)]
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "d").unlink()
    shutil.rmtree(tmp_path / "e")
    assert ["a", "b"] == paths(first)
    assert [] == list(found)


@pytest.mark.slow
def test_a_process_that_makes_and_removes_for_ever(tmp_path: Path) -> None:
    """Permanent files are always found, and none is reported as missing."""
    (tmp_path / "zebra").write_text("stays")
    process = subprocess.Popen([sys.executable, "-c", CHURN], cwd=tmp_path)
    try:
        for _ in range(2_000):
            found = list(walk(tmp_path))
            assert "zebra" == paths(found)[-1]
            assert [] == [each for each in found if each.refused]
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (found,) = walk(tmp_path)
    assert "Permission denied" == found.refused


@pytest.mark.parametrize("seconds", [-(2**31), -1, 0, 2**33, 2**35])
def test_a_file_of_any_time(tmp_path: Path, seconds: int) -> None:
    """Archives have files from before 1970, and programs set arbitrary times: they are restored unchanged."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (here / "a").write_text("a")
    os.utime(here / "a", ns=(0, seconds * 10**9 + 7))
    (found,) = walk(here)
    message = type(found.message).FromString(found.message.SerializeToString())
    put(there, tmp_path / "temporary", [(message, memoryview(b"a"))])
    assert (here / "a").stat().st_mtime_ns == (there / "a").stat().st_mtime_ns
