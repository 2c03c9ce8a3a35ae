"""`runtime.files`: a user's operations on the working directory of a jail."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from tests.support.descriptors import MEMORY, opened
from tests.waiting import until_async

from cenote.runtime import AsyncFiles, AsyncPythonRuntime, Files, PythonRuntime
from cenote_security.errors import FileRefusedError, FileTakenError, UnknownFileError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.transport.content import INLINE_LIMIT

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]


@pytest.mark.at("embedded", "platform", "relayed", "http")
@pytest.mark.parametrize("size", [0, 1, INLINE_LIMIT, INLINE_LIMIT + 1, 3_000_000])
def test_bytes_come_back_as_they_went(runtime: PythonRuntime, size: int) -> None:
    """Inline or in sealed memory, byte for byte; the jail sees the same file."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    runtime.files.write("data.bin", data)
    assert data == runtime.files.read("data.bin")
    assert repr(size) == runtime.execute("len(open('data.bin', 'rb').read())").value


def test_a_part_of_a_file(runtime: PythonRuntime) -> None:
    """An offset and a size; beyond the end it is empty."""
    runtime.files.write("text", "0123456789")
    assert b"345" == runtime.files.read("text", 3, 3)
    assert b"89" == runtime.files.read("text", offset=8)
    assert b"9" == runtime.files.read("text", 9, 5)
    assert b"" == runtime.files.read("text", 50, 5)
    assert b"" == runtime.files.read("text", 2**63 - 1)
    for offset in (-1, 2**63, 2**70):
        with pytest.raises(UsageError, match="offset"):
            runtime.files.read("text", offset)


@pytest.mark.at("embedded")
def test_text_that_utf8_cannot_write(runtime: PythonRuntime) -> None:
    """Escaped it would be a different text: it is refused, and the error gives the remedy."""
    with pytest.raises(UsageError, match="errors='surrogateescape', and give the bytes"):
        runtime.files.write("text", "half of \ud83d")


def test_what_a_cell_made_is_listed(runtime: PythonRuntime) -> None:
    """Names, kinds and sizes, sorted; folders by their paths."""
    runtime.execute(
        "import os\nos.makedirs('out/deep')\nopen('a.txt', 'w').write('xyz')\nos.symlink('a.txt', 'l')"
    )
    assert [("a.txt", "file", 3), ("l", "link", 5)] == [
        (entry.name, entry.kind, entry.size) for entry in runtime.files.list() if entry.kind != "folder"
    ]
    assert ["deep"] == [entry.name for entry in runtime.files.list("out")]
    assert runtime.files.list().complete
    assert 3 == runtime.files.stat(PurePosixPath("a.txt")).size
    assert "folder" == runtime.files.stat("").kind
    assert (True, False) == (runtime.files.exists("out/deep"), runtime.files.exists("out/no"))


def test_missing_folders_are_made_and_files_kept(runtime: PythonRuntime) -> None:
    """Writing makes missing folders; only overwrite=True replaces."""
    runtime.files.write("a/b/c.txt", "old")
    with pytest.raises(FileTakenError, match="overwrite=True"):
        runtime.files.write("a/b/c.txt", "new")
    assert b"old" == runtime.files.read("a/b/c.txt")
    runtime.files.write("a/b/c.txt", "new", overwrite=True)
    assert b"new" == runtime.files.read("a/b/c.txt")
    assert ["c.txt"] == [entry.name for entry in runtime.files.list("a/b")]


@pytest.mark.at("embedded", "platform", "http")
def test_delete(runtime: PythonRuntime) -> None:
    """Files, links and empty folders; a full one is refused."""
    runtime.files.write("folder/file", "")
    with pytest.raises(FileRefusedError, match="not empty"):
        runtime.files.delete("folder")
    runtime.files.delete("folder/file")
    runtime.files.delete("folder")
    with pytest.raises(UnknownFileError):
        runtime.files.delete("folder")


def test_upload_and_download(runtime: PythonRuntime, tmp_path: Path) -> None:
    """A local file goes in and out; an existing file is kept by default."""
    (tmp_path / "in.csv").write_bytes(b"a,b\n" * 50_000)
    runtime.files.upload(tmp_path / "in.csv", "data/in.csv")
    assert "200000" == runtime.execute("import os; os.path.getsize('data/in.csv')").value
    runtime.files.download("data/in.csv", tmp_path / "out.csv")
    assert (tmp_path / "in.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()
    runtime.files.write("other", "x")
    with pytest.raises(FileTakenError, match="overwrite=True"):
        runtime.files.download("other", tmp_path / "out.csv")
    runtime.files.download("other", tmp_path / "out.csv", overwrite=True)
    assert "x" == (tmp_path / "out.csv").read_text()
    assert {"in.csv", "out.csv"} == {path.name for path in tmp_path.iterdir()}


def test_usage_is_checked_before_the_jail(runtime: PythonRuntime) -> None:
    """Relative paths stay below the working directory; numbers must be valid."""
    for path in ("../x", "a/../../x", "a\0b", "\udcff", "x" * 5_000):
        with pytest.raises(UsageError):
            runtime.files.read(path)
    with pytest.raises(UsageError, match="negative"):
        runtime.files.read("x", -1)
    with pytest.raises(FileRefusedError, match="working directory itself"):
        runtime.files.write("", b"")


@pytest.mark.at("embedded")
def test_the_size_limit(make_runtime: Callable[..., PythonRuntime], tmp_path: Path) -> None:
    """A transfer has at most as many bytes as the disk of the policy, in both directions."""
    runtime = make_runtime(isolation="landlock", disk="1MiB")
    (tmp_path / "big").write_bytes(bytes(2**20))
    runtime.files.upload(tmp_path / "big", "big")
    runtime.files.download("big", tmp_path / "again")
    (tmp_path / "big").write_bytes(bytes(2**20 + 1))
    with pytest.raises(FileRefusedError, match="policy lets 1048576"):
        runtime.files.upload(tmp_path / "big", "more")
    with pytest.raises(FileRefusedError, match="policy lets 1048576"):
        runtime.files.write("more", bytes(2**20 + 1))
    runtime.execute("open('big', 'ab').write(b'x')")
    with pytest.raises(FileRefusedError, match="1048577 bytes; at most 1048576"):
        runtime.files.download("big", tmp_path / "more")
    assert ["big"] == [entry.name for entry in runtime.files.list()]


@pytest.mark.at("embedded")
def test_a_full_disk_leaves_no_half_file(make_runtime: Callable[..., PythonRuntime]) -> None:
    """A write that does not fit is refused with the kernel's error, and the existing file stays."""
    runtime = make_runtime(isolation="strict", disk="1MiB")
    runtime.files.write("kept", bytes(600_000))
    for name, overwrite in (("more", False), ("kept", True)):
        with pytest.raises(FileRefusedError, match="No space left"):
            runtime.files.write(name, bytes(900_000), overwrite=overwrite)
    assert [("kept", 600_000)] == [(entry.name, entry.size) for entry in runtime.files.list()]


@pytest.mark.at("embedded")
def test_both_faces_have_the_same_files() -> None:
    """Both APIs have the same methods, with the same arguments."""
    faces = [
        {
            name: list(inspect.signature(member).parameters.values())
            for name, member in inspect.getmembers(face, inspect.isfunction)
            if not name.startswith("_")
        }
        for face in (Files, AsyncFiles)
    ]
    assert faces[0] == faces[1]


async def test_the_async_face(tmp_path: Path) -> None:
    """Every call, awaited; concurrent calls run in sequence."""
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        files = runtime.files
        await asyncio.gather(*(files.write(f"f{number}", str(number)) for number in range(5)))
        assert ["f0", "f1", "f2", "f3", "f4"] == [entry.name for entry in await files.list()]
        assert (b"3", 1) == (await files.read("f3"), (await files.stat("f3")).size)
        await files.download("f4", tmp_path / "local")
        await files.upload(tmp_path / "local", "again")
        assert await files.exists("again")
        await files.delete("again")
        assert not await files.exists("again")


async def test_a_cancelled_read_leaves_no_descriptor() -> None:
    """An answer for a caller that has gone is closed."""
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        await runtime.files.write("big", bytes(INLINE_LIMIT + 1))
        before = len(opened(MEMORY))
        cell = asyncio.create_task(runtime.execute("sum(range(5_000_000))"))
        reads = [asyncio.create_task(runtime.files.read("big")) for _ in range(5)]
        await asyncio.sleep(0)  # each has queued its request
        for read in reads:
            read.cancel()
        await asyncio.gather(cell, *reads, return_exceptions=True)
        assert b"" == await runtime.files.read("big", 0, 0)
        await until_async(lambda: len(opened(MEMORY)) <= before)


@pytest.mark.at("embedded", "platform", "http")
def test_files_wait_for_the_running_cell(runtime: PythonRuntime) -> None:
    """A read sees what the cell before it wrote, even while the jail is busy."""
    runtime.execute("import threading, time\nopen('x', 'w').write('1')")
    assert b"1" == runtime.files.read("x")


def test_a_new_jail_has_an_empty_directory(runtime: PythonRuntime) -> None:
    """The working directory's content is lost with the jail."""
    runtime.files.write("x", "1")
    runtime.reset()
    assert not runtime.files.exists("x")
