"""The local side of transfers: links made by other users, atomic writes, limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cenote.runtime.faces.local_files import read_local, write_local
from cenote_security.errors import FileRefusedError, FileTakenError, UnknownFileError
from cenote_security.policy import Mount
from cenote_worker.transport.content import INLINE_LIMIT, Content

BIG = bytes(INLINE_LIMIT + 1)


def read(path: Path | str, most: int = 10**6, mounts: tuple[Mount, ...] = ()) -> bytes:
    content = read_local(path, most, mounts)
    try:
        return content.whole()
    finally:
        content.close()


def write(path: Path | str, data: bytes, mounts: tuple[Mount, ...] = (), *, overwrite: bool = False) -> None:
    content = Content.of_bytes(data)
    try:
        write_local(path, content, mounts, overwrite=overwrite)
    finally:
        content.close()


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Mount, ...]:
    """A folder that jails may write to."""
    (tmp_path / "shared").mkdir()
    return (Mount(source=str(tmp_path / "shared"), target="/shared", writable=True),)


@pytest.mark.parametrize("data", [b"", b"small", BIG], ids=["empty", "inline", "memory"])
def test_there_and_back(tmp_path: Path, data: bytes) -> None:
    """Written content is read back, by absolute and by relative paths."""
    write(tmp_path / "file", data)
    assert data == read(tmp_path / "file")
    assert data == read(os.path.relpath(tmp_path / "file"))
    assert ["file"] == [path.name for path in tmp_path.iterdir()]


def test_no_device_is_replaced(tmp_path: Path) -> None:
    """Root could put a file in the place of /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileRefusedError, match="it is not a regular file"):
        write(tmp_path / "pipe", b"x", overwrite=True)
    assert [True] == [path.is_fifo() for path in tmp_path.iterdir()]


def test_the_users_own_links_lead_on(tmp_path: Path) -> None:
    """Relative and absolute, several of them, and `..`: resolved as the kernel does."""
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "far").symlink_to(tmp_path / "way")
    write(tmp_path / "far" / "file", b"x")
    (tmp_path / "link").symlink_to("far/../real/file")
    assert b"x" == read(tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make somebody else's link")
def test_a_link_of_somebody_else(tmp_path: Path) -> None:
    """Neither read through nor written through, whatever its target."""
    (tmp_path / "secret").write_bytes(b"s")
    for name, target in (("file", "secret"), ("way", ".")):
        (tmp_path / name).symlink_to(target)
        os.chown(tmp_path / name, 12345, 12345, follow_symlinks=False)
    for path in ("file", "way/secret"):
        with pytest.raises(FileRefusedError, match="another user"):
            read(tmp_path / path)
    with pytest.raises(FileRefusedError, match="another user"):
        write(tmp_path / "way" / "new", b"")
    assert not (tmp_path / "new").exists()


def test_a_link_below_a_shared_folder(tmp_path: Path, shared: tuple[Mount, ...]) -> None:
    """A jail may work under the user's own id: where it can write, no link is followed, whatever its owner."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "file").write_bytes(b"s")
    (tmp_path / "shared" / "way").symlink_to(tmp_path / "private")
    (tmp_path / "shared" / "file").symlink_to(tmp_path / "private" / "file")
    assert b"s" == read(tmp_path / "shared" / "file")
    for path in ("file", "way/file"):
        with pytest.raises(FileRefusedError, match="another user"):
            read(tmp_path / "shared" / path, mounts=shared)
    with pytest.raises(FileRefusedError, match="another user"):
        write(tmp_path / "shared" / "way" / "new", b"", shared)
    assert ["file"] == [path.name for path in (tmp_path / "private").iterdir()]


def test_a_shared_folder_behind_the_users_link(tmp_path: Path, shared: tuple[Mount, ...]) -> None:
    """The folder is identified by its inode, not by its name."""
    (tmp_path / "alias").symlink_to("shared")
    (tmp_path / "shared" / "up").symlink_to("..")
    with pytest.raises(FileRefusedError, match="another user"):
        write(tmp_path / "alias" / "up" / "new", b"", shared)


def test_a_link_in_place_of_the_target(tmp_path: Path, shared: tuple[Mount, ...]) -> None:
    """It counts as existing, and replacing replaces the link itself: its target is unchanged."""
    (tmp_path / "private").write_bytes(b"s")
    place = tmp_path / "shared" / "out"
    place.symlink_to(tmp_path / "private")
    with pytest.raises(FileTakenError):
        write(place, b"new", shared)
    write(place, b"new", shared, overwrite=True)
    assert (b"s", b"new", False) == (
        (tmp_path / "private").read_bytes(),
        place.read_bytes(),
        place.is_symlink(),
    )


def test_links_in_a_circle(tmp_path: Path) -> None:
    """An endless path is an error."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(FileRefusedError, match="too many"):
        read(tmp_path / "a")


def test_what_is_not_a_file(tmp_path: Path) -> None:
    """A pipe without a writer is refused at once; so are folders, as source and as target."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(FileRefusedError, match="regular"):
            read(path)
    with pytest.raises(FileRefusedError, match="folder"):
        write(f"{tmp_path}/", b"")
    with pytest.raises(FileRefusedError):
        write(tmp_path, b"", overwrite=True)
    with pytest.raises(UnknownFileError):
        read(tmp_path / "no")


def test_the_limit(tmp_path: Path) -> None:
    """At the limit and one past it."""
    (tmp_path / "file").write_bytes(bytes(100))
    assert 100 == len(read(tmp_path / "file", 100))
    with pytest.raises(FileRefusedError, match="100 bytes; the policy lets 99"):
        read(tmp_path / "file", 99)


def test_what_comes_out_is_not_executable(tmp_path: Path) -> None:
    """Whatever its mode was in the jail."""
    write(tmp_path / "program", b"#!/bin/sh\n")
    assert 0 == (tmp_path / "program").stat().st_mode & 0o111
