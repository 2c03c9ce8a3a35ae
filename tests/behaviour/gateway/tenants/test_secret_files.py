"""Files that hold a secret."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cenote.gateway.store.state_folder import StateFolder
from cenote_security.auth.secret_files import (
    create_secret_file,
    kept_secret,
    make_private_file,
    privacy_problem,
    read_secret_file,
    replace_file,
)
from cenote_security.errors import SecretFileError


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o277])
def test_a_new_file_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """Whatever the umask allows or removes."""
    path = tmp_path / "token"
    old = os.umask(umask)
    try:
        create_secret_file(path, b"secret")
    finally:
        os.umask(old)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert b"secret" == read_secret_file(path)
    assert [path] == list(tmp_path.iterdir())


def test_a_missing_folder_is_made_private(tmp_path: Path) -> None:
    """Other users may not see the names of secrets either."""
    create_secret_file(tmp_path / "cenote" / "token", b"secret")
    assert 0o700 == stat.S_IMODE((tmp_path / "cenote").stat().st_mode)


def test_a_file_in_the_place_of_its_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "cenote").write_text("a file")
    with pytest.raises(SecretFileError, match="cenote is a file, not a folder"):
        create_secret_file(tmp_path / "cenote" / "token", b"secret")


def test_so_are_those_above_it_that_are_missing(tmp_path: Path) -> None:
    """Whatever the umask: a user who can write above a folder can replace it."""
    old = os.umask(0)
    try:
        create_secret_file(tmp_path / ".config" / "cenote" / "token", b"secret")
        StateFolder(path=tmp_path / ".local" / "state" / "cenote").make()
    finally:
        os.umask(old)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in made}
    assert 5 == len(made)


def test_a_file_is_made_once(tmp_path: Path) -> None:
    """A second creator is refused, and leaves neither a change nor a file."""
    path = tmp_path / "token"
    create_secret_file(path, b"first")
    with pytest.raises(SecretFileError, match="exists already"):
        create_secret_file(path, b"second")
    assert b"first" == read_secret_file(path)
    assert [path] == list(tmp_path.iterdir())


def test_of_makers_at_once_one_wins(tmp_path: Path) -> None:
    """All of them read the same secret."""
    path = tmp_path / "token"
    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(lambda number: kept_secret(path, lambda: b"%d" % number), range(32)))
    assert 1 == len(set(contents))
    assert [path] == list(tmp_path.iterdir())


def test_a_file_for_a_library_is_never_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may have opened and locked it by then, and closing it releases the locks of the process."""
    path, named = tmp_path / "database", tmp_path / "link"
    named.symlink_to(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
        assert [True, False] == [make_private_file(named), make_private_file(path)]
    assert (0, stat.S_IFREG | 0o600) == (path.stat().st_size, path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666, 0o610])
def test_a_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    """Read, write and execute permission alike: the error says what to do."""
    path = tmp_path / "token"
    create_secret_file(path, b"secret")
    path.chmod(mode)
    with pytest.raises(SecretFileError, match=f"mode 0{mode:o}.*chmod 600"):
        read_secret_file(path)


def status(uid: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, 0, 6, 0, 0, 0))


@pytest.mark.parametrize(
    ("uid", "mode", "user", "problem"),
    [
        (1000, stat.S_IFREG | 0o600, 1000, ""),
        (1000, stat.S_IFREG | 0o400, 1000, ""),
        (1001, stat.S_IFREG | 0o600, 1000, "another user"),
        (1001, stat.S_IFREG | 0o600, 0, "another user"),
        (0, stat.S_IFREG | 0o440, 1000, ""),  # a secret that Kubernetes mounts
        (0, stat.S_IFREG | 0o460, 1000, "others may"),
        (0, stat.S_IFREG | 0o444, 1000, "others may"),
        (0, stat.S_IFREG | 0o440, 0, "others may"),
        (1000, stat.S_IFDIR | 0o700, 1000, "not an ordinary file"),
    ],
)
def test_who_may_keep_a_secret(uid: int, mode: int, user: int, problem: str) -> None:
    """The owner is the user or root; root may let a group read what it mounts for an ordinary user."""
    found = privacy_problem(status(uid, mode), user)
    assert (problem in found) if problem else found == ""


def test_the_largest_secret(tmp_path: Path) -> None:
    """A chain of certificates may be long."""
    create_secret_file(tmp_path / "chain", bytes(2**20))
    assert bytes(2**20) == read_secret_file(tmp_path / "chain")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "not an ordinary file"),
        (lambda path: os.mkfifo(path, 0o600), "not an ordinary file"),
        (lambda path: replace_file(path, bytes(2**20 + 1)), "larger than"),
    ],
    ids=["missing", "folder", "fifo", "huge"],
)
def test_what_is_no_secret_file(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    """Each is refused at once; a FIFO does not block the reader."""
    make(tmp_path / "token")
    with pytest.raises(SecretFileError, match=reason):
        read_secret_file(tmp_path / "token")


def test_a_replaced_file_is_whole_and_private(tmp_path: Path) -> None:
    """Also over a file that others could read; a mode can be passed for a file that is not secret."""
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert b"new" == read_secret_file(path)
    replace_file(path, b"for all", mode=0o644)
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)
    assert [path] == list(tmp_path.iterdir())


def test_what_the_system_refuses_is_said(tmp_path: Path) -> None:
    """For example a path through a file."""
    (tmp_path / "file").touch()
    for write in (create_secret_file, replace_file):
        with pytest.raises(SecretFileError, match="cannot be written"):
            write(tmp_path / "file" / "token", b"")
