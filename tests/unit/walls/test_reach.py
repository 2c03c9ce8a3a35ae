"""Finding the folders that keep an unprivileged user from the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote_security.walls.levels.landlock_level import closed_folders


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """open/closed/deep/python and open/python below a folder that any user may enter."""
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(0o755)
    for path in ("open/closed/deep/python", "open/python"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "open" / "closed").chmod(0o700)
    return tmp_path


def test_the_outermost_closed_folder(tree: Path) -> None:
    """With all the paths below it; an accessible path is not listed."""
    below = str(tree / "open/closed/deep/python")
    (tree / "open/closed/deep").chmod(0o700)
    assert {str(tree / "open/closed"): (below,)} == closed_folders([below, str(tree / "open/python")])


def test_a_path_that_does_not_exist(tree: Path) -> None:
    """No folder has to be opened for it."""
    assert {} == closed_folders([str(tree / "open/closed/nothing")])


def test_the_path_itself_may_be_closed(tree: Path) -> None:
    """Only folders above it are reported; its own mode is its owner's decision."""
    assert {} == closed_folders([str(tree / "open/closed")])
