"""Copies of checkpoints, taken while a writer stores more of them and sweeps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

import pytest
from tests.support.checkpoints.fixtures import put

from cenote_worker.checkpoints.copies import CheckpointPlacing, copy_checkpoints
from cenote_worker.checkpoints.errors import StoreFailedError
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.checkpoints.writer import CheckpointWriter


def stored(writer: CheckpointWriter, step: int) -> None:
    draft = writer.begin()
    writer.publish(draft, put(draft, {"x": b"%d" % step * 1000}, step), "")


@pytest.mark.parametrize("url", ["{}/folder", "local://{}/objects"])
def test_a_copy_beside_a_writer_that_sweeps_is_whole(tmp_path: Path, url: str) -> None:
    """The files of the first listing are removed while it is copied: the newest checkpoint is whole all the same."""
    store = CheckpointStore(url.format(tmp_path))
    writer = CheckpointWriter(store, "r", None)
    for step in (1, 2, 3):
        stored(writer, step)
    copied: dict[int, bytes] = {}

    def add(number: int, file: IO[bytes], size: int) -> None:
        if number == 1:
            stored(writer, 4)
            writer.sweep(1)
        copied[number] = file.read(size)

    assert copy_checkpoints(store.folder("r"), add) == 4
    assert {1, 4} == set(copied)
    other = CheckpointStore(str(tmp_path / "other"))
    placing = CheckpointPlacing(other.folder("r"))
    for number, content in copied.items():
        placing.put(number, io.BytesIO(content))
    assert placing.close() == ""
    assert other.manifest("r").state.message.step == 4
    later = CheckpointWriter(other, "r", other.manifest("r"))
    stored(later, 5)
    assert other.manifest("r").fence > store.manifest("r").fence
    for each in (writer, later):
        each.close()


def test_a_checkpoint_that_was_damaged_before_is_named(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    placing = CheckpointPlacing(store.folder("r"))
    placing.put(1, io.BytesIO(b"no checkpoint"))
    assert "checkpoint 1 is damaged" in placing.close()


def test_a_runtime_that_is_served_is_not_overwritten(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    writer = CheckpointWriter(store, "r", None)
    with pytest.raises(StoreFailedError, match="another process writes it"):
        CheckpointPlacing(store.folder("r"))
    writer.close()
