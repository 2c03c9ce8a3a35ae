"""A store returns what was published, or reports the damage; it never returns anything else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Final

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checkpoints.fixtures import put, store, writer_of

from cenote_security.errors import UnknownEntryError, UsageError
from cenote_security.extras import MissingExtraError
from cenote_security.sealed_memory import Buffer
from cenote_worker.checkpoints import manifest as format_
from cenote_worker.checkpoints.errors import (
    CheckpointDamagedError,
    NewerCheckpointError,
    StoreBusyError,
    StoreFailedError,
    StoreTakenError,
)
from cenote_worker.checkpoints.local_folder import LocalDraft, LocalFolder
from cenote_worker.checkpoints.manifest import FOOTER, decode, encode
from cenote_worker.checkpoints.restoring import read, verify
from cenote_worker.checkpoints.store import CheckpointStore, read_manifest
from cenote_worker.checkpoints.writer import CheckpointWriter
from cenote_worker.transport.chunks import CHUNK

NEXT: Final = format_.VERSION + 1
"""The format of a later version of Cenote."""


def file_of(folder: Path, number: int, name: str = "r") -> Path:
    return folder / name / f"{number:012d}.checkpoint"


def contents(where: str | Path, number: int | None = None) -> dict[str, bytes]:
    """The content of each variable of a checkpoint."""
    checkpoints = CheckpointStore(where)
    restoration = read(checkpoints, "r", checkpoints.manifest("r", number), partial=False)
    try:
        return {piece.names[0]: bytes(piece.content.unpack()[0]) for piece in restoration.pieces[:-1]}
    finally:
        restoration.close()


@pytest.fixture
def memory() -> Iterator[str]:
    """A store without a file path."""
    yield "memory://cenote-test"
    fsspec.filesystem("memory").rm("/cenote-test", recursive=True)


# -- what is stored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_every_checkpoint_is_read_as_it_was_written(
    place: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Whatever later checkpoints share with it, in a folder and through fsspec."""
    where = folder if place == "folder" else request.getfixturevalue("memory")
    writer = writer_of(where)
    a, b = os.urandom(3 * CHUNK + 5), os.urandom(CHUNK)
    store(writer, a=a, b=b)
    store(writer, a=a[:CHUNK] + b + a[2 * CHUNK :])
    assert {"a": a, "b": b} == contents(where, 1)
    assert {"a": a[:CHUNK] + b + a[2 * CHUNK :]} == contents(where)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, CHUNK))
def test_only_chunks_that_are_new_are_written(pattern: list[int], tail: int) -> None:
    """A repeated chunk, or one that existed before, takes space once."""
    where = f"memory://cenote-test-{os.urandom(4).hex()}"
    blocks = [bytes([65 + index]) * CHUNK for index in range(4)]
    content = b"".join(blocks[index] for index in pattern) + b"t" * tail
    writer = writer_of(where)
    first = store(writer, a=content)
    second = store(writer, a=content, b=content)
    ours = sum(place.stored for place in first.chunks.values())
    assert (len(set(pattern)) * CHUNK + tail, {1}) == (ours, {p.file for p in second.chunks.values()})
    assert {"a": content, "b": content} == contents(where)


def test_streams_are_compressed_where_that_pays(folder: Path) -> None:
    """Text shrinks; what looks random is stored as it is; both are read back."""
    writer = writer_of(folder)
    draft = writer.begin()
    text, noise = b"the same words again " * 3000, os.urandom(CHUNK)
    keys = [draft.add(memoryview(part), dense=True) for part in (text, noise)]
    places = [draft.places[key] for key in keys]
    draft.discard()
    assert (format_.ZLIB, format_.RAW) == (places[0].coding, places[1].coding)
    assert places[0].stored < len(text) // 10


def test_a_checkpoint_is_found_by_number_and_by_label(folder: Path) -> None:
    """A label means the newest checkpoint with it; without either, the newest of all is meant."""
    writer = writer_of(folder)
    for label in ("clean", "", "clean", "late"):
        store(writer, label, a=b"x")
    checkpoints = CheckpointStore(folder)
    assert 3 == checkpoints.manifest("r", "clean").number
    assert (2, 4) == (checkpoints.manifest("r", 2).number, checkpoints.manifest("r").number)
    assert [(4, "late"), (3, "clean"), (2, ""), (1, "clean")] == [
        (info.number, info.label) for info in checkpoints.checkpoints("r")
    ]
    with pytest.raises(UnknownEntryError):
        checkpoints.manifest("r", "dirty")


@pytest.mark.parametrize("name", ["r", "a b", "../up", "ä/ö", ".", "a.b", "%2E"])
def test_any_name_is_a_folder_of_its_own(name: str, folder: Path) -> None:
    """Whatever path it looks like; and it is listed unchanged."""
    writer_of(folder, name)
    assert [name] == CheckpointStore(folder).names()
    assert [folder] == [path.parent for path in folder.iterdir()]


def test_a_runtime_removed_while_sizes_are_added_up_counts_for_nothing(folder: Path) -> None:
    """One is made and removed repeatedly, another stays: the least size seen is that of the other."""
    store(writer_of(folder), a=b"x")
    checkpoints = CheckpointStore(folder)
    size, ended = checkpoints.size(), threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            (folder / "gone").mkdir()
            (folder / "gone").rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        assert {size} == {checkpoints.size() for _ in range(3_000)}
    finally:
        ended.set()
        other.join()


@pytest.mark.parametrize("name", ["", "x" * 201, "a\ud800"])
def test_a_name_that_no_folder_can_have_is_refused(name: str, folder: Path) -> None:
    """Before a folder is made."""
    with pytest.raises(UsageError):
        CheckpointStore(folder).folder(name)


@pytest.mark.parametrize(
    ("path", "why"), [("a\0b", "zero byte"), ("\ud800", "utf-8; take another name$")], ids=["zero", "half"]
)
def test_a_path_that_no_folder_can_have_is_refused(path: str, why: str) -> None:
    """With our message, not that of the kernel or a codec."""
    with pytest.raises(UsageError, match=why):
        CheckpointStore(path)


def test_a_path_that_a_locale_has_no_letters_for_is_refused(folder: Path) -> None:
    """A store whose folder has an umlaut, in a process that names files in ASCII: the error says what to do."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    opening = (
        "from cenote_worker.checkpoints.store import CheckpointStore\n"
        f"try: CheckpointStore({str(folder)!a} + '/st\\xe4tte')\n"
        "except ValueError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", opening], env=environment, capture_output=True, check=True)
    assert done.stdout.startswith(b"UsageError ")
    assert b"names of files are ascii; run Python with PYTHONUTF8=1" in done.stdout


def test_a_url_whose_library_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that installs it."""

    def refuse(_url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(MissingExtraError, match=r"s3://bucket/path is not .* 'cenote\[s3\]' \(Install s3fs"):
        CheckpointStore("s3://bucket/path")


def test_a_url_of_no_known_kind_is_refused() -> None:
    """With the reason that fsspec gives."""
    with pytest.raises(UsageError, match="nowhere"):
        CheckpointStore("nowhere://bucket/path")


class DriverError(Exception):
    """An error class of a driver, as botocore's ClientError and NoCredentialsError are: no OSError."""


class AwayFileSystem(MemoryFileSystem):
    """A store whose driver raises errors of its own."""

    protocol = "away"
    broken: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in AwayFileSystem.broken:
            raise DriverError("Unable to locate\ncredentials")
        return super().__getattribute__(name)


@pytest.fixture
def away() -> Iterator[str]:
    """Its URL; it works until names of methods are put into `AwayFileSystem.broken`."""
    fsspec.register_implementation("away", AwayFileSystem, clobber=True)
    yield "away://cenote-test"
    AwayFileSystem.broken.clear()
    AwayFileSystem.store.clear()


@pytest.mark.parametrize(
    ("broken", "ask"),
    [
        ("ls", lambda at: CheckpointStore(at).check()),
        ("ls", lambda at: CheckpointStore(at).names()),
        ("ls", lambda at: CheckpointStore(at).has("r")),
        ("du", lambda at: CheckpointStore(at).size()),
        ("rm", lambda at: CheckpointStore(at).remove("r")),
        ("size", lambda at: CheckpointStore(at).manifest("r")),
        ("cat_file", lambda at: CheckpointStore(at).manifest("r")),
        ("cat_file", lambda at: CheckpointStore(at).checkpoints("r")),
        ("invalidate_cache", lambda at: CheckpointStore(at).checkpoints("r")),
        ("makedirs", writer_of),
        ("pipe_file", writer_of),
        ("put_file", lambda at: store(writer_of(at), a=b"a")),
    ],
)
def test_whatever_a_driver_raises_is_said_in_one_way(
    away: str, broken: str, ask: Callable[[str], object]
) -> None:
    """A driver has its own error classes. Their text is preserved, in one line."""
    store(writer_of(away), a=b"a")
    AwayFileSystem.broken.add(broken)
    with pytest.raises(
        StoreFailedError, match=r"away://cenote-test.*: DriverError: Unable to locate credentials; "
    ):
        ask(away)


def test_a_driver_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, away: str) -> None:
    """Such as one that looks for credentials at once."""

    def refuse(_url: str) -> None:
        raise DriverError("no credentials")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(
        UsageError, match=r"'away://cenote-test' is no store that can be used: .*no credentials"
    ):
        CheckpointStore(away)


# -- damage -----------------------------------------------------------------------------------------------


def test_a_changed_chunk_is_named_with_what_else_can_be_restored(folder: Path) -> None:
    """One bit is enough. The variables that need the chunk are named, the others are not."""
    writer = writer_of(folder)
    store(writer, a=b"a" * CHUNK, b=b"b" * CHUNK)
    store(writer, a=b"c" * CHUNK, b=b"b" * CHUNK)
    path = file_of(folder, 2)
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointDamagedError) as caught:
        verify(CheckpointStore(folder), "r")
    assert (2, (1,)) == (caught.value.number, caught.value.restorable)
    assert ["variables a (a chunk in file 2 is not what was written)"] == list(caught.value.damage)
    verify(CheckpointStore(folder), "r", 1)


def test_what_is_whole_can_be_had_without_what_is_damaged(folder: Path) -> None:
    """A partial restore leaves the damaged variables out, also from the namespace's names."""
    writer = writer_of(folder)
    store(writer, a=b"a" * CHUNK, b=b"b" * CHUNK)
    path = file_of(folder, 1)
    path.write_bytes(b"?" + path.read_bytes()[1:])
    checkpoints = CheckpointStore(folder)
    with_the_rest = read(checkpoints, "r", checkpoints.manifest("r"), partial=True)
    assert [("b",), ()] == [piece.names for piece in with_the_rest.pieces]
    assert ("variables a (a chunk in file 1 is not what was written)",) == with_the_rest.damage
    with_the_rest.close()


@pytest.mark.parametrize("kept", [0, 10, FOOTER, -1, -FOOTER, -FOOTER - 1])
def test_a_torn_file_is_no_checkpoint(kept: int, folder: Path) -> None:
    """However it was cut, it is reported by its number, and is not listed."""
    writer = writer_of(folder)
    store(writer, a=b"a" * 100)
    store(writer, a=b"b" * 100)
    path = file_of(folder, 2)
    path.write_bytes(path.read_bytes()[: kept or 0])
    with pytest.raises(CheckpointDamagedError) as caught:
        CheckpointStore(folder).manifest("r")
    assert (2, (1,)) == (caught.value.number, caught.value.restorable)
    assert [1] == [info.number for info in CheckpointStore(folder).checkpoints("r")]


def test_a_file_that_is_gone_is_missed(folder: Path) -> None:
    """The checkpoint that needs its chunks is not listed, and a restore of it names the missing file."""
    writer = writer_of(folder)
    store(writer, a=b"a" * CHUNK)
    store(writer, a=b"a" * CHUNK, b=b"b")
    file_of(folder, 1).unlink()
    assert [] == CheckpointStore(folder).checkpoints("r")
    with pytest.raises(CheckpointDamagedError, match="file 1 is gone"):
        verify(CheckpointStore(folder), "r")


def test_a_file_under_another_number_is_damaged(folder: Path) -> None:
    """A manifest contains the number of its checkpoint."""
    writer = writer_of(folder)
    store(writer, a=b"a")
    file_of(folder, 1).rename(file_of(folder, 5))
    with pytest.raises(CheckpointDamagedError, match="checkpoint 1, under another name"):
        CheckpointStore(folder).manifest("r")


def test_a_later_format_is_refused_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read as if it were of this version."""
    with monkeypatch.context() as patched:
        patched.setattr(format_, "VERSION", NEXT)
        store(writer_of(folder), a=b"a")
    with pytest.raises(
        NewerCheckpointError, match=f"format {NEXT}, this version of Cenote reads {NEXT - 1}; use the newer"
    ):
        CheckpointStore(folder).manifest("r")


@given(st.data())
def test_no_changed_byte_of_a_manifest_is_taken_for_one(data: st.DataObject) -> None:
    """Every byte of manifest and footer is covered by a sum or a comparison."""
    writer = writer_of(f"memory://cenote-test-{os.urandom(4).hex()}")
    whole = encode(store(writer, "label", a=b"a" * 1000, b=b"b"))
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(format_.MalformedManifest):
        decode(bytes(changed[:-FOOTER]), bytes(changed[-FOOTER:]))


# -- writers ----------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_while_the_first_lives(folder: Path) -> None:
    """In the same process and in another: the lock belongs to the file. Closing frees it."""
    first = writer_of(folder)
    with pytest.raises(StoreBusyError):
        writer_of(folder)
    first.close()
    writer_of(folder).close()


def test_a_writer_that_was_overtaken_stores_nothing_more(memory: str) -> None:
    """Where there is no lock the later writer has the higher fence, and the earlier one notices it."""
    first = writer_of(memory)
    store(first, a=b"1")
    second = writer_of(memory)
    with pytest.raises(StoreTakenError):
        store(first, a=b"2")
    store(second, a=b"3")
    assert {"a": b"3"} == contents(memory)


def test_a_number_is_given_once(folder: Path) -> None:
    """Even where locks do not work, such as on some network file systems, nothing is overwritten."""
    writer = writer_of(folder)
    draft = writer.begin()
    others = file_of(folder, 1)
    others.write_bytes(b"of another writer")
    with pytest.raises(StoreTakenError):
        writer.publish(draft, put(draft, {"a": b"a"}), "")
    draft.discard()
    assert b"of another writer" == others.read_bytes()


def test_what_a_killed_writer_has_left_is_removed_by_the_next(folder: Path) -> None:
    """Its unfinished file never had the name of a checkpoint."""
    writer = writer_of(folder)
    draft = writer.begin()
    draft.add(memoryview(b"a" * CHUNK), dense=False)
    writer.close()  # as the kernel closes it for a killed process; the draft stays
    assert [] == CheckpointStore(folder).checkpoints("r")
    writer_of(folder).close()
    assert ["writer"] == [path.name for path in (folder / "r").iterdir()]


class FullDisk(LocalFolder):
    """A folder on a disk with room for that many bytes."""

    def __init__(self, path: Path, room: int) -> None:
        super().__init__(path)
        self._room = room

    def draft(self, number: int) -> LocalDraft:
        draft, room = super().draft(number), self._room
        write = draft.write

        def write_some(data: Buffer) -> None:
            nonlocal room
            fits = memoryview(data).cast("B")[: max(room, 0)]
            room -= memoryview(data).nbytes
            write(fits)
            if room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        draft.write = write_some  # type: ignore[method-assign]
        return draft


@pytest.mark.parametrize("room", [0, 70_000, 140_000])
def test_a_full_disk_leaves_what_was_there(room: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any byte: the error says so, nothing half-written stays, and the writer continues when there is room."""
    writer = writer_of(folder)
    store(writer, a=b"old")
    healthy = writer._folder
    monkeypatch.setattr(writer, "_folder", FullDisk(folder / "r", room))
    monkeypatch.setattr(writer._folder, "_lock", healthy._lock)  # type: ignore[attr-defined]
    with pytest.raises((StoreFailedError, OSError), match="No space left"):
        store(writer, a=os.urandom(2 * CHUNK + 8_900))
    assert {"a": b"old"} == contents(folder)
    assert {"writer", "000000000001.checkpoint"} == {path.name for path in (folder / "r").iterdir()}
    monkeypatch.setattr(writer, "_folder", healthy)
    store(writer, a=b"new")
    assert {"a": b"new"} == contents(folder)


# -- sweeping ---------------------------------------------------------------------------------------------


def test_a_sweep_keeps_what_is_needed(folder: Path) -> None:
    """The newest, those with a label, and the files with their chunks."""
    writer = writer_of(folder)
    big = os.urandom(2 * CHUNK)
    store(writer, a=big)  # 1: all need its chunks
    store(writer, a=big, b=b"2")
    store(writer, "kept", a=big, b=b"3")
    for step in range(4, 9):
        store(writer, a=big, b=b"%d" % step)
    assert 3 == writer.sweep(2) - 1  # of 2, 4, 5 and 6
    assert [8, 7, 3, 1] == [info.number for info in CheckpointStore(folder).checkpoints("r")]
    assert {"a": big, "b": b"3"} == contents(folder, 3)
    assert {"a": big, "b": b"8"} == contents(folder)


def test_a_writer_whose_base_was_swept_writes_it_again(folder: Path) -> None:
    """It checks which files exist before it refers to them."""
    writer = writer_of(folder)
    base = store(writer, a=b"a" * CHUNK)
    store(writer, b=b"b" * CHUNK)
    writer.close()
    going_on = CheckpointWriter(CheckpointStore(folder), "r", base)
    assert 1 == going_on.sweep(1)
    store(going_on, a=b"a" * CHUNK)
    assert {"a": b"a" * CHUNK} == contents(folder)


def test_nothing_is_swept_that_a_newer_version_may_need(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of its checkpoint are unknown here; this version's checkpoints can be restored."""
    writer = writer_of(folder)
    big = os.urandom(2 * CHUNK)
    store(writer, a=big)
    with monkeypatch.context() as patched:
        patched.setattr(format_, "VERSION", NEXT)
        store(writer, a=big, b=b"2")
    for step in (3, 4):
        store(writer, b=b"%d" % step)
    assert 0 == writer.sweep(1)
    with pytest.raises(NewerCheckpointError, match="or restore one of 4, 3, 1"):
        CheckpointStore(folder).manifest("r", 2)
    monkeypatch.setattr(format_, "VERSION", NEXT)
    assert file_of(folder, 1).exists()


def test_a_store_that_was_removed_is_begun_anew(folder: Path) -> None:
    """By a writer with an open store: the next checkpoint has everything, and stands for itself."""
    writer = writer_of(folder)
    store(writer, a=b"a" * CHUNK)
    shutil.rmtree(folder)
    store(writer, a=b"a" * CHUNK, b=b"b")
    assert {"a": b"a" * CHUNK, "b": b"b"} == contents(folder)
    with pytest.raises(StoreBusyError):
        writer_of(folder)
    shutil.rmtree(folder)
    with closing(writer_of(folder)), pytest.raises(StoreTakenError):
        store(writer, a=b"a")


def test_a_damaged_file_is_not_swept(folder: Path) -> None:
    """Its content may be recovered by other means."""
    writer = writer_of(folder)
    for value in (b"1", b"2", b"3"):
        store(writer, a=value)
    path = file_of(folder, 1)
    path.write_bytes(path.read_bytes()[:-1])
    assert 1 == writer.sweep(1)
    assert path.exists()
    assert 3 == read_manifest(LocalFolder(folder / "r"), 3).number
