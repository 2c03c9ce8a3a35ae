"""The memory that images of a store have in common, beside other writers and after kills. No jail is needed."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from cenote_security.sealed_memory import SealedMemory
from cenote_worker.checkpoints.image_files import CommonMemory, ImageFiles, StoredImage
from cenote_worker.checkpoints.local_folder import LocalFolder

SIZE = 2**20


@pytest.fixture
def common() -> Iterator[CommonMemory]:
    with SealedMemory.create([os.urandom(SIZE)]) as memory:
        found = CommonMemory.of(memory.fileno())
        yield found
        found.file.close()


def folder(store: Path, name: str) -> Path:
    path = store / name
    path.mkdir(exist_ok=True)
    return path


def is_right(path: Path) -> bool:
    return path.name == f"{hashlib.sha256(path.read_bytes()).hexdigest()}.common"


def test_images_share_it_until_the_last_one_goes(tmp_path: Path, common: CommonMemory) -> None:
    first, second = (ImageFiles(folder(tmp_path, name)) for name in ("first", "second"))
    assert not first.has_common(common)
    digest = first.write_common(1, common)
    assert second.has_common(common)
    assert digest == second.write_common(7, common)
    (shared,) = tmp_path.glob("*.common")
    assert (3, True) == (shared.stat().st_nlink, is_right(shared))
    first.delete(1)
    assert shared.exists()
    second.keep_only(())
    assert [] == list(tmp_path.rglob("*.common"))


def test_one_that_was_cut_is_written_anew(tmp_path: Path, common: CommonMemory) -> None:
    """Other damage is seen when it is read, and then the next image gets another copy."""
    first, second = (ImageFiles(folder(tmp_path, name)) for name in ("first", "second"))
    stored = StoredImage(common=first.write_common(1, common))
    (shared,) = tmp_path.glob("*.common")
    shared.chmod(0o600)
    os.truncate(shared, 10)
    assert stored.common == second.write_common(1, common)
    for files, size in ((first, None), (second, SIZE)):
        content = files.open_common(1, stored)
        assert size == (content.size if content is not None else None)
        if content is not None:
            content.close()
    with (tmp_path / "second" / "000000000001.common").open("r+b") as file:
        file.write(b"forged")
    assert second.open_common(1, stored) is None
    assert not second.has_common(common)
    assert stored.common == first.write_common(2, common)
    assert is_right(next(tmp_path.glob("*.common")))


def test_writers_at_the_same_time(tmp_path: Path, common: CommonMemory) -> None:
    """Whatever the order, each image has the whole memory, and none is left behind."""

    def work(name: str) -> None:
        rng, files = random.Random(name), ImageFiles(folder(tmp_path, name))
        for number in range(200):
            stored = StoredImage(common=files.write_common(number, common))
            if rng.random() < 0.1:
                content = files.open_common(number, stored)
                assert content is not None
                content.close()
            if rng.random() < 0.8:
                files.keep_only(())
        files.keep_only(())

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, f"{each}") for each in range(4)]:
            done.result()
    assert [] == list(tmp_path.rglob("*.common*"))


def work_until_killed(path: Path, common: CommonMemory) -> NoReturn:
    """Ends in another way if anything fails."""
    try:
        files = ImageFiles(path)
        while True:
            files.write_common(1, common)
            files.write_common(2, common)
            files.keep_only(())
    finally:
        os._exit(1)


def test_a_kill_leaves_nothing_that_is_wrong(tmp_path: Path, common: CommonMemory) -> None:
    """The next writer of the folder removes what no checkpoint needs; another folder's image stays whole."""
    rng, other = random.Random(20261130), ImageFiles(folder(tmp_path, "other"))
    for turn in range(20):
        child = os.fork()
        if not child:
            work_until_killed(folder(tmp_path, "killed"), common)
        moment = threading.Timer(rng.uniform(0, 0.03), os.kill, (child, signal.SIGKILL))
        moment.start()
        stored = StoredImage(common=other.write_common(turn, common))
        assert -signal.SIGKILL == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        moment.join()
        assert all(is_right(path) for path in tmp_path.glob("*.common"))
        local = LocalFolder(tmp_path / "killed")
        assert local.claim() is not None
        assert [] == [path.name for path in (tmp_path / "killed").iterdir() if ".common" in path.name]
        content = other.open_common(turn, stored)
        assert content is not None
        content.close()
        local.release()
    other.keep_only(())
    assert [] == list(tmp_path.rglob("*.common*"))
