"""`runtime.files` outside the working directory: absolute paths, folders, moves, changes, streams."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import PATIENCE

from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote_security.errors import (
    FileRefusedError,
    FileTakenError,
    IsolationUnavailableError,
    UnknownFileError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(preload=(), snapshots="none", disk="16MiB")


@pytest.fixture(scope="module")
def platform() -> Iterator[SmallPlatform]:
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture(scope="module", params=["strict", "landlock", "gvisor", "elsewhere"])
def shared(request: pytest.FixtureRequest) -> Iterator[PythonRuntime]:
    """One for all tests, at each level and on a platform."""
    if request.param == "elsewhere":
        address = request.getfixturevalue("platform").address
        runtime = PythonRuntime(address=address, token=TOKEN, sandbox=SMALL)
    else:
        runtime = PythonRuntime(sandbox=SandboxPolicy(isolation=request.param, preload=(), disk="16MiB"))
    try:
        runtime.execute("import os; here = os.getcwd(); temporary = os.environ['TMPDIR']")
    except IsolationUnavailableError as error:
        pytest.skip(str(error))
    yield runtime
    runtime.close()


@pytest.fixture
def files(shared: PythonRuntime) -> Iterator[PythonRuntime]:
    yield shared
    for entry in shared.files.list():
        shared.files.remove(entry.raw, recursive=True)


def temporary(runtime: PythonRuntime) -> str:
    return str(runtime.retrieve("temporary"))


def test_absolute_paths_are_those_of_the_jail(files: PythonRuntime) -> None:
    """Written, read, described and removed as a cell would see them."""
    path = f"{temporary(files)}/deep/er/file"
    files.files.write(path, b"0123456789\xff")
    assert "11" == files.execute(f"len(open({path!r}, 'rb').read())").value
    assert (b"0123456789\xff", b"345", b"\xff") == (
        files.files.read(path),
        files.files.read(path, 3, 3),
        files.files.read(path, offset=10),
    )
    found = files.files.stat(path)
    assert ("file", "file", 11, 0o600) == (found.name, found.kind, found.size, found.mode)
    assert files.files.exists(path)
    with pytest.raises(FileTakenError):
        files.files.write(path, b"")
    files.files.write(path, "é", overwrite=True)
    assert "é".encode() == files.files.read(path)
    files.files.delete(path)
    assert not files.files.exists(path)
    files.files.remove(f"{temporary(files)}/deep", recursive=True)


def test_what_a_cell_may_not_a_client_may_not(files: PythonRuntime) -> None:
    """The jail's isolation decides: the machine's files cannot be written, and hidden files do not exist."""
    with pytest.raises(UnknownFileError):
        files.files.read("/no/such/file")
    with pytest.raises(FileRefusedError):
        files.files.write("/usr/cenote-was-here", b"x")
    with pytest.raises(FileRefusedError):
        files.files.remove("/usr/bin", recursive=True)
    assert not Path("/usr/cenote-was-here").exists()
    with pytest.raises(FileRefusedError, match="regular"):
        files.files.read("/dev/zero")


def test_folders_in_depth(files: PythonRuntime) -> None:
    files.execute(
        "os.makedirs('a/b/c'); open('a/1', 'w').close(); open('a/b/2', 'w').close(); os.symlink('1', 'a/l')"
    )
    assert ["a"] == [each.name for each in files.files.list("", depth=1)]
    assert ["a", "a/1", "a/b", "a/l"] == [each.name for each in files.files.list("", depth=2)]
    deep = files.files.list("a", depth=9)
    assert ["1", "b", "b/2", "b/c", "l"] == [each.name for each in deep]
    assert (True, "1") == (deep.complete, deep.entries[-1].target)
    with pytest.raises(FileRefusedError):
        files.files.list("a/1", depth=1)
    with pytest.raises(UnknownFileError):
        files.files.list("no", depth=2)


def test_folders_are_made_moved_and_removed(files: PythonRuntime) -> None:
    files.files.mkdir("x/y")
    with pytest.raises(FileTakenError):
        files.files.mkdir("x/y")
    files.files.mkdir("x/y", exist_ok=True)
    files.files.write("x/y/f", b"1")
    files.files.move("x/y", "z/w")
    assert b"1" == files.files.read("z/w/f")
    files.files.write("g", b"2")
    with pytest.raises(FileTakenError):
        files.files.move("g", "z/w/f")
    files.files.move("g", "z/w/f", overwrite=True)
    assert b"2" == files.files.read("z/w/f")
    files.files.move("z/w/f", f"{temporary(files)}/f", overwrite=True)
    files.files.remove(f"{temporary(files)}/f")
    with pytest.raises(FileRefusedError):
        files.files.remove("z")
    files.files.remove("z", recursive=True)
    with pytest.raises(UnknownFileError):
        files.files.remove("z")


def test_names_that_are_no_text(files: PythonRuntime) -> None:
    files.files.mkdir(b"d\xff")
    assert [b"d\xff"] == [each.raw for each in files.files.list("", depth=1)]
    assert b"d\xff" == files.files.stat(f"{files.retrieve('here')}/".encode() + b"d\xff").raw


def test_streams(files: PythonRuntime) -> None:
    """More than a call moves at once, in pieces, in both directions."""
    pieces = [bytes([number]) * 100_000 for number in range(30)]
    files.files.write_stream("big", iter(pieces))
    assert b"".join(pieces) == b"".join(files.files.read_stream("big"))
    out = io.BytesIO()
    files.files.download("big", out)
    assert b"".join(pieces) == out.getvalue()
    files.files.upload(io.BytesIO(b"from a file"), "small")
    assert b"from a file" == files.files.read("small")
    for _ in files.files.read_stream("big"):
        break  # the rest is discarded


def test_a_stream_that_breaks_leaves_nothing(files: PythonRuntime) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise KeyError("no more")

    with pytest.raises(KeyError):
        files.files.write_stream("f", broken())
    assert not files.files.exists("f")
    files.files.write_stream("f", [b"1"])
    with pytest.raises(FileTakenError):
        files.files.write_stream("f", [b"2" * 1_000_000] * 3)
    with pytest.raises(UnknownFileError):
        list(files.files.read_stream("no"))


def test_local_files_come_and_go(files: PythonRuntime, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 1_000_000)
    path = f"{temporary(files)}/up"
    files.files.upload(tmp_path / "in", path)
    files.files.download(path, tmp_path / "out")
    assert (tmp_path / "in").read_bytes() == (tmp_path / "out").read_bytes()
    files.files.remove(path)


def test_changes_are_seen(files: PythonRuntime) -> None:
    """A file that existed before is not a change; watching ends when it is closed."""
    files.files.write("there", b"1")
    with files.files.watch("", every=0.02) as watch:
        changes = iter(watch)
        files.execute("os.makedirs('d'); open('d/new', 'w').close()")
        assert {("created", "d"), ("created", "d/new")} == {
            (each.kind, each.path) for each in (next(changes), next(changes))
        }
        files.files.write("there", b"22", overwrite=True)
        while (event := next(changes)).path != "there":
            pass
        assert "changed" == event.kind
        files.files.remove("d/new")
        assert ("removed", "d/new") == ((event := next(changes)).kind, event.path)
        threading.Timer(0.05, watch.close).start()
        assert [] == [each for each in changes if each.path != "d"]
    with pytest.raises(UnknownFileError):
        files.files.watch("no")


def test_a_cell_that_runs_keeps_nobody_waiting(files: PythonRuntime) -> None:
    cell = threading.Thread(
        target=files.execute,
        args=("import time\nwhile not os.path.exists('go'): time.sleep(0.01)", PATIENCE),
    )
    cell.start()
    files.files.write_stream("go", [b""])
    cell.join(PATIENCE)
    assert not cell.is_alive()


@pytest.mark.parametrize("depth", [0, 65, True, "1"])
def test_wrong_depths(files: PythonRuntime, depth: object) -> None:
    with pytest.raises(UsageError, match="depth"):
        files.files.list("", depth=depth)  # type: ignore[arg-type]


def test_wrong_paths(files: PythonRuntime) -> None:
    for path in ("/a\0b", "/" + "x" * 5_000, "/\ud800"):
        with pytest.raises(UsageError):
            files.files.read(path)
    with pytest.raises(FileRefusedError, match="too long"):
        files.files.write(f"{temporary(files)}/{'y' * 300}", b"")


def test_coroutines() -> None:
    async def work() -> None:
        async with AsyncPythonRuntime(sandbox=SMALL) as runtime:
            files = runtime.files
            await files.write("/tmp/x", b"1")
            await files.mkdir("d")
            await files.move("/tmp/x", "d/x")
            assert b"1" == await files.read("/workspace/d/x")
            assert ["d", "d/x"] == [each.name for each in await files.list("", depth=2)]
            await files.write_stream("s", [b"a", b"b"])
            assert b"ab" == b"".join([piece async for piece in files.read_stream("s")])
            async with await files.watch("", every=0.02) as watch:
                await files.remove("s")
                async for event in watch:
                    assert ("removed", "s") == (event.kind, event.path)
                    break
            await files.remove("d", recursive=True)
            assert not await files.exists("d")

    asyncio.run(work())
