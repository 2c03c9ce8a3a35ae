"""The key that says whether an image of a process fits the jails of a zygote."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from cenote_worker.zygote.client import ZygoteClient
from cenote_worker.zygote.image_key import difference

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")


def key(folder: Path, isolation: str = "strict") -> str:
    """Of a zygote that has loaded a module from there."""
    for each in (folder, *folder.parents[:3]):
        each.chmod(0o755)
    with ZygoteClient(isolation=isolation, preload=("some_module",), folders=(str(folder),)) as client:  # type: ignore[arg-type]
        return client.facts.image_key


@pytest.mark.slow
def test_zygotes_of_one_environment_have_one_key(tmp_path: Path) -> None:
    """A module whose file has changed is a difference, as is a package of another version."""
    module = tmp_path / "some_module.py"
    module.write_text("x = 1\n")
    first = key(tmp_path)
    assert first
    assert first == key(tmp_path)
    os.utime(module, ns=(1, 1))
    second = key(tmp_path)
    assert "Python files or installed packages are not what they were" == difference(first, second)
    (tmp_path / "some-2.0.dist-info").mkdir()
    assert "Python files or installed packages are not what they were" == difference(second, key(tmp_path))


def test_other_levels_have_none(tmp_path: Path) -> None:
    """Their jails become no images."""
    (tmp_path / "some_module.py").write_text("")
    assert "" == key(tmp_path, "landlock")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("machine=1 jail=3", ""),
        ("machine=2 jail=3", "the machine is another one, or was started again"),
        ("machine=1 jail=4", "jails begin with other modules, folders or mounts"),
        ("machine=1 jail=3 later=5", "this version of Cenote writes images in another form"),
        ("", "the machine is another one, or was started again"),
        ("0123456789abcdef", "the machine is another one, or was started again"),
    ],
)
def test_what_differs_is_named(other: str, expected: str) -> None:
    """Keys of earlier versions, which named a zygote, or of later ones, are of another environment, too."""
    assert expected == difference("machine=1 jail=3", other)
