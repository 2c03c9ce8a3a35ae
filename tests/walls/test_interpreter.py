"""Which host paths a jail sees of the client's Python."""

from __future__ import annotations

from pathlib import Path

from cenote_security.walls.interpreter import describe, running


def test_a_project_s_folder_stays_outside(tmp_path: Path) -> None:
    """Of an environment in a project: its libraries and programs. Of the project on the path: our packages only."""
    prefix = tmp_path / "project"
    library = prefix / "lib" / "python3.11" / "site-packages"
    for folder in (library, prefix / "bin", prefix / "secrets", prefix / "cenote_worker"):
        folder.mkdir(parents=True)
    found = describe(str(prefix / "bin" / "python"), ["", str(prefix), str(library)], [str(prefix)])
    assert (str(prefix), str(library)) == found.search
    expected = {prefix / "bin", prefix / "lib", prefix / "cenote_worker", library}
    assert expected == {Path(path) for path in found.visible}


def test_a_prefix_behind_a_link_is_shown_by_both_names(tmp_path: Path) -> None:
    """Programs refer to it by either."""
    (tmp_path / "real" / "lib").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = describe("python", [], [str(tmp_path / "link")])
    assert (str(tmp_path / "link" / "lib"), str(tmp_path / "real" / "lib")) == found.visible


def test_paths_that_are_not_libraries_are_dropped(tmp_path: Path) -> None:
    """A folder of scripts on the path is the client's own business."""
    (tmp_path / "scripts").mkdir()
    assert () == describe("python", [str(tmp_path / "scripts"), "relative"], []).search


def test_the_running_interpreter_finds_its_library() -> None:
    """Where this very module's neighbours come from is on a jail's path, or is shown."""
    found = running()
    assert any(
        Path(path).is_relative_to(shown)
        for path in (Path(__import__("json").__file__),)
        for shown in found.visible
    )
    assert Path(found.executable).exists()
