"""Working folders on the host: removed whatever hostile code has made in them."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from cenote_security.walls.levels.host_folders import Folders, remove_tree, sweep


def test_a_deep_tree(tmp_path: Path) -> None:
    """Deeper than the recursion limit and the usual number of descriptors."""
    top = tmp_path / "top"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    remove_tree(top)
    assert [] == list(tmp_path.iterdir())


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither a link to a folder nor one to a file removes its target."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (tmp_path / "top" / "inner").mkdir(parents=True)
    for place in (tmp_path / "top", tmp_path / "top" / "inner"):
        (place / "folder").symlink_to(tmp_path / "outside")
        (place / "file").symlink_to(tmp_path / "outside" / "file")
    remove_tree(tmp_path / "top")
    assert ["outside"] == [path.name for path in tmp_path.iterdir()]
    assert (tmp_path / "outside" / "file").exists()


def test_a_link_in_place_of_a_folder(tmp_path: Path) -> None:
    """A folder is opened before its removal, and not named again: a link's target keeps even its mode."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside").chmod(0o755)
    (tmp_path / "top").symlink_to(tmp_path / "outside")
    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "top")
    assert 0o755 == (tmp_path / "outside").stat().st_mode & 0o777


def test_closed_folders_and_clashing_names(tmp_path: Path) -> None:
    """Modes of 0 and names that the removal itself would use are no obstacle."""
    for name in (".1/.2/.3", ".2/.1", "a/.1/x", "\udcff"):
        (tmp_path / "top" / name).mkdir(parents=True)
    (tmp_path / "top" / "a" / ".1").chmod(0)
    (tmp_path / "top" / "a").chmod(0)
    remove_tree(tmp_path / "top")
    assert [] == list(tmp_path.iterdir())


def test_nothing_to_remove(tmp_path: Path) -> None:
    """A folder that does not exist is no error."""
    remove_tree(tmp_path / "gone")
    assert [] == list(tmp_path.iterdir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_sweeping_spares_the_living(temporary: Path) -> None:
    """The base folder of a living zygote is locked; that of a dead one is not, and is removed."""
    living = Folders()
    dead = temporary / "cenote-jails-dead"
    (dead / "1" / "workspace").mkdir(parents=True)
    (dead / "lock").touch()
    sweep()
    assert [living.base] == list(temporary.iterdir())
    living.close()
    assert [] == list(temporary.iterdir())


def test_folders_of_a_jail(temporary: Path) -> None:
    """Only the jail's user can enter them; others may traverse the base but not list it."""
    folders = Folders()
    folders.make(7, None)
    home = folders.home(7)
    assert [0o700, 0o700] == [Path(path).stat().st_mode & 0o777 for path in (home.workdir, home.temporary)]
    assert 0o711 == folders.base.stat().st_mode & 0o777
    folders.remove(7)
    assert not folders.root(7).exists()
    folders.close()


@pytest.mark.parametrize("at", ["before the lock", "behind the lock"])
def test_a_sweep_that_comes_while_a_zygote_makes_its_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """It takes a folder that is not locked yet for a killed zygote's. The zygote's final folder stays."""
    real, came = fcntl.flock, list[int]()

    def slow(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not came:
            came.append(file)
            if at == "behind the lock":
                real(file, operation)
            sweep()
        real(file, operation)

    monkeypatch.setattr("cenote_security.walls.levels.host_folders.fcntl.flock", slow)
    folders = Folders()
    assert came
    sweep()
    folders.make(1, None)
    assert [folders.base] == list(temporary.iterdir())
    folders.close()
    assert [] == list(temporary.iterdir())
