"""The host paths of the client's Python that a jail sees."""

from __future__ import annotations

from pathlib import Path

from cenote_security.walls.interpreter import describe, installed_names, is_installed, running


def installed(folder: Path, name: str, *files: str) -> None:
    """A distribution in a folder, as `pip install --target` leaves it."""
    record = folder / f"{name}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    listed = [f"{name}-1.0.dist-info/RECORD", "../../bin/tool", *files]
    record.write_text("".join(f"{file},sha256=x,0\n" for file in listed))


def test_a_project_s_folder_stays_outside(tmp_path: Path) -> None:
    """Of an environment in a project: its libraries and programs. Of the project on the path: only our packages."""
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
    """A folder of scripts on the path is private to the client."""
    (tmp_path / "scripts").mkdir()
    assert () == describe("python", [str(tmp_path / "scripts"), "relative"], []).search


def test_the_running_interpreter_finds_its_library() -> None:
    """The standard library is on a jail's path, or is visible."""
    found = running()
    assert any(
        Path(path).is_relative_to(shown)
        for path in (Path(__import__("json").__file__),)
        for shown in found.visible
    )
    assert Path(found.executable).exists()


def test_what_an_installer_has_put_into_any_folder_is_a_library(tmp_path: Path) -> None:
    """PYTHONPATH and `.pth` files lead to such folders."""
    installed(tmp_path, "tool", "tool/__init__.py", "tool.libs/x.so", "single.py")
    (tmp_path / "bin").mkdir()
    found = describe("python", [str(tmp_path)], [])
    assert ((str(tmp_path),), (str(tmp_path),)) == (found.search, found.visible)
    for file in ("tool/part.py", "single.py"):
        assert is_installed(str(tmp_path / file), [str(tmp_path)])


def test_a_project_around_installed_packages_stays_outside(tmp_path: Path) -> None:
    """`pip install --target .` puts packages between the project's own files."""
    installed(tmp_path, "tool", "tool/__init__.py", "single.py")
    for name in (".env", "mine.py", "tool_of_mine.py"):
        (tmp_path / name).write_text("secret")
    found = describe("python", [str(tmp_path)], [])
    assert (str(tmp_path),) == found.search
    assert {"tool", "single.py", "tool-1.0.dist-info"} == {Path(path).name for path in found.visible}
    assert not is_installed(str(tmp_path / "tool_of_mine.py"), [str(tmp_path)])


def test_a_user_s_site_folder_is_a_library(tmp_path: Path) -> None:
    """By its name alone: its content is not read."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    assert is_installed(str(site / "numpy" / "__init__.py"), [str(tmp_path), str(site)])


def test_numpy_is_a_library_without_a_record(tmp_path: Path) -> None:
    """Copied by hand into a folder on the path; a project's folder of that name is no library."""
    (tmp_path / "numpy" / "_core").mkdir(parents=True)
    (tmp_path / "mine.py").write_text("")
    assert () == describe("python", [str(tmp_path)], []).search
    installed_names.cache_clear()
    (tmp_path / "numpy" / "_core" / "_multiarray_umath.cpython-311-x86_64-linux-gnu.so").write_text("")
    (tmp_path / "pandas").mkdir()
    found = describe("python", [str(tmp_path)], [])
    assert {"numpy", "pandas"} == {Path(path).name for path in found.visible}
    assert is_installed(str(tmp_path / "numpy" / "__init__.py"), [str(tmp_path)])
