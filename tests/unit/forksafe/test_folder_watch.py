"""A watched folder: each kind of change gives it another moment, what changes nothing does not, and where the paths
that have changed are known, looking at these finds what looking at all finds."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cenote_worker.jail.process.proc_info import shared_files
from cenote_worker.jail.process.process_names import become_frozen, is_another_process_running, run_as
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.files import workdir_files
from cenote_worker.jail.tracking.files.workdir_files import WorkdirFiles
from cenote_worker.jail.workdir import folder_watch
from cenote_worker.jail.workdir.folder_watch import FEW, FolderWatch
from cenote_worker.jail.workdir.tree import scan
from cenote_worker.jail.workdir.versions import WorkdirVersions


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Other processes that run, as the watch sees them: none, unlike on the machine of a test. What earlier tests of
    this process have mapped is not seen either.
    """
    found: list[str] = []
    monkeypatch.setattr(folder_watch, "is_another_process_running", lambda: bool(found))
    mapped_before = shared_files()
    monkeypatch.setattr(folder_watch, "shared_files", lambda: shared_files() - mapped_before)
    return found


@pytest.fixture
def top(tmp_path: Path) -> Path:
    make_folder(tmp_path / "top")
    return tmp_path / "top"


def make_folder(folder: Path) -> None:
    (folder / "inner").mkdir(parents=True)
    for number in range(FEW):
        (folder / f"f{number}").write_text("x")
    (folder / "inner" / "g").write_text("x")


@pytest.fixture
def watch(top: Path, others: list[str]) -> Iterator[FolderWatch]:
    made = FolderWatch(str(top))
    assert made.moment(FEW) is not None
    yield made
    made.end()


def replace(top: Path) -> None:
    (top.parent / "other").write_text("y")
    (top.parent / "other").rename(top / "f3")


def write_by_number(top: Path) -> None:
    way = os.open(top / "f3", os.O_WRONLY)
    os.pwrite(way, b"y", 0)
    os.close(way)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda top: (top / "f3").write_text("y"),
    "written by its descriptor": write_by_number,
    "in a folder": lambda top: (top / "inner" / "g").write_text("y"),
    "made": lambda top: (top / "new").touch(),
    "removed": lambda top: (top / "f3").unlink(),
    "renamed": lambda top: (top / "f3").rename(top / "new"),
    "replaced": replace,
    "shortened": lambda top: os.truncate(top / "f3", 0),
    "permissions": lambda top: (top / "f3").chmod(0o640),
    "times": lambda top: os.utime(top / "f3", ns=(1, 1)),
    "attributes": lambda top: os.setxattr(top / "f3", "user.x", b"y"),
    "linked": lambda top: (top / "new").hardlink_to(top / "f3"),
    "a link": lambda top: (top / "new").symlink_to("f3"),
    "a folder made": lambda top: (top / "new").mkdir(),
    "a folder moved": lambda top: (top / "inner").rename(top / "elsewhere"),
    "a folder moved in, with what is in it": lambda top: (
        (top.parent / "side").mkdir()
        or (top.parent / "side" / "h").touch()
        or (top.parent / "side").rename(top / "side")
    ),
    "the folder's own permissions": lambda top: top.chmod(0o711),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_gives_another_moment(top: Path, watch: FolderWatch, kind: str) -> None:
    """Also one right after another of its kind, and in a folder that has just been made or moved."""
    before = watch.moment(FEW)
    assert before == watch.moment(FEW)
    CHANGES[kind](top)
    after = watch.moment(FEW)
    assert before != after == watch.moment(FEW)
    for place in (*top.glob("**/g"), *top.glob("**/h")):
        place.write_text("z")
    (top / "f5").write_text("z")
    assert after != watch.moment(FEW)


def test_what_only_reads_changes_nothing(top: Path, watch: FolderWatch) -> None:
    before = watch.moment(FEW)
    assert "x" == (top / "f3").read_text()
    assert FEW + 1 == len(list(top.iterdir()))
    list(top.glob("**/*"))
    assert before == watch.moment(FEW)


def test_memory_that_was_mapped_and_is_gone(top: Path, watch: FolderWatch) -> None:
    """No notice tells of writes to it while the file stays open: its times do."""
    with open(top / "f3", "r+b") as file:
        before = watch.moment(FEW)
        assert before == watch.moment(FEW)
        with mmap.mmap(file.fileno(), 1) as mapped:
            assert watch.moment(FEW) is None  # it may change at any time
            mapped[0] = ord("y")
        after = watch.moment(FEW)
        assert before != after == watch.moment(FEW)
    assert after != watch.moment(FEW)


def test_a_file_that_was_opened_before_the_watch_began(top: Path, others: list[str]) -> None:
    watch = FolderWatch(str(top))
    with open(top / "f3", "r+b") as file:
        before = watch.moment(FEW)
        with mmap.mmap(file.fileno(), 1) as mapped:
            mapped[0] = ord("y")
        assert before != watch.moment(FEW)
    watch.end()


def test_a_file_that_another_process_may_have_open(top: Path, watch: FolderWatch, others: list[str]) -> None:
    """It may have mapped it, and memory is written without a notice: so the file's metadata are compared, until no
    other process runs."""
    others.append("a process")
    assert "x" == (top / "f3").read_text()
    before = watch.moment(FEW)
    assert before == watch.moment(FEW)
    assert ["f3"] == list(watch._open)
    others.clear()
    assert before == watch.moment(FEW)
    assert [] == list(watch._open)


def test_no_watch_begins_beside_another_process(top: Path, others: list[str]) -> None:
    others.append("a process")
    assert FolderWatch(str(top)).moment(FEW) is None


def test_a_file_that_is_open_by_a_name_that_it_lost(top: Path, watch: FolderWatch) -> None:
    (top / "second").hardlink_to(top / "f3")
    with open(top / "f3", "r+b") as file:
        watch.moment(FEW)
        (top / "f3").unlink()
        before = watch.moment(FEW)
        with mmap.mmap(file.fileno(), 1) as mapped:
            mapped[0] = ord("y")
        assert before != watch.moment(FEW)


def test_small_folders_are_not_watched(tmp_path: Path, others: list[str]) -> None:
    assert FolderWatch(str(tmp_path)).moment(FEW - 1) is None


def test_a_program_that_closes_the_descriptor_and_takes_its_number(top: Path, watch: FolderWatch) -> None:
    """Nothing is read from a file of the program's, and nothing is missed."""
    before = watch.moment(FEW)
    (top / "f3").write_text("y")
    theirs = os.open(top / "f4", os.O_RDONLY)
    os.dup2(theirs, watch._descriptor)
    number = watch._descriptor
    assert before != watch.moment(FEW)
    assert 0 == os.lseek(number, 0, os.SEEK_CUR)
    os.close(number)
    os.close(theirs)


def test_more_folders_than_are_watched(top: Path, others: list[str]) -> None:
    for number in range(folder_watch._MOST_FOLDERS):
        (top / f"d{number}").mkdir()
    assert FolderWatch(str(top)).moment(FEW) is None


def test_notices_that_did_not_fit(top: Path, watch: FolderWatch) -> None:
    """The kernel drops what is beyond its queue, and says so."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    before = watch.moment(FEW)
    for _ in range(most // 2 + 1):
        (top / "f3").chmod(0o600)
        (top / "f4").chmod(0o600)
    after = watch.moment(FEW)
    assert before != after
    assert after == watch.moment(FEW)


def test_versions_of_a_watched_folder(top: Path, watch: FolderWatch) -> None:
    """Recorded again only after a change, and each can be restored."""
    versions = WorkdirVersions(
        str(top), str(top.parent / "store"), max_bytes=2**20, max_file=2**20, changes=watch
    )
    versions.record(0)
    assert 0 == versions.record(1, or_last=True).version
    (top / "f3").write_text("y")
    assert 2 == versions.record(2, or_last=True).version
    assert 2 == versions.record(3, or_last=True).version
    versions.restore(0)
    assert "x" == (top / "f3").read_text()
    assert 0 == versions.record(4, or_last=True).version
    versions.restore(2)
    assert "y" == (top / "f3").read_text()
    (top / "f3").write_text("z")
    assert 5 == versions.record(5, or_last=True).version


def link_write_and_unlink(top: Path) -> None:
    """Writes to a file by a second name, which is gone again."""
    (top / "second").hardlink_to(top / "f3")
    (top / "second").write_text("by the second name")
    (top / "second").unlink()


def link_write_and_replace(top: Path) -> None:
    """The same, and another file has that name now."""
    (top / "third").write_text("of its own")
    (top / "second").hardlink_to(top / "f3")
    (top / "second").write_text("by the second name")
    (top / "third").rename(top / "second")


def write_to_memory(top: Path) -> None:
    with open(top / "f3", "r+b") as file:
        file.truncate(9)
        with mmap.mmap(file.fileno(), 9) as mapped:
            mapped[:] = os.urandom(9)


def write_by_second_name(top: Path) -> None:
    if not (top / "second").exists():
        (top / "second").hardlink_to(top / "f3")
    (top / "second").write_bytes(os.urandom(5))


def change_link(top: Path) -> None:
    (top / "link").unlink(missing_ok=True)
    (top / "link").symlink_to(os.urandom(4).hex())


ACTIONS: dict[str, Callable[[Path], object]] = {
    "written": lambda top: (top / "f3").write_bytes(os.urandom(5)),
    "written by its descriptor": write_by_number,
    "written to memory": write_to_memory,
    "in a folder": lambda top: (top / "inner" / "g").write_bytes(os.urandom(5)),
    "made": lambda top: (top / os.urandom(4).hex()).write_text("x"),
    "made in a folder": lambda top: (top / "inner" / os.urandom(4).hex()).touch(),
    "removed": lambda top: (top / "f5").unlink(missing_ok=True),
    "made again": lambda top: (top / "f5").write_text("x"),
    "renamed": lambda top: (top / "f3").rename(top / "f4"),
    "renamed back": lambda top: (top / "f4").rename(top / "f3"),
    "replaced": replace,
    "shortened": lambda top: os.truncate(top / "f3", 0),
    "permissions": lambda top: (top / "f3").chmod(0o640),
    "times": lambda top: os.utime(top / "f3", ns=(1, 1)),
    "attributes": lambda top: os.setxattr(top / "f3", "user.x", os.urandom(3)),
    "written by a second name": write_by_second_name,
    "the second name removed": lambda top: (top / "second").unlink(missing_ok=True),
    "the second name renamed": lambda top: (top / "second").rename(top / "another"),
    "written by a second name that is gone": link_write_and_unlink,
    "written by a second name that is another file's": link_write_and_replace,
    "a link": change_link,
    "a folder made": lambda top: (top / "new").mkdir(exist_ok=True),
    "a folder removed": lambda top: (top / "new").rmdir(),
    "a folder moved": lambda top: (top / "inner").rename(top / "elsewhere"),
    "a folder moved back": lambda top: (top / "elsewhere").rename(top / "inner"),
    "in a folder of caches": lambda top: (
        (top / "__pycache__").mkdir(exist_ok=True) or (top / "__pycache__" / "a").write_bytes(os.urandom(5))
    ),
    "the folder's own permissions": lambda top: top.chmod(0o711),
    "nothing": lambda top: None,
}


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the fixture holds for all examples
@given(st.lists(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=3), min_size=1, max_size=6))
@example([[each] for each in ACTIONS])
@example([["nothing"], ["written by a second name that is gone"], ["written"]])
@example([["nothing"], ["written by a second name", "the folder's own permissions"], ["permissions"]])
@example([["nothing"], ["written by a second name", "the second name renamed"], ["permissions"]])
@example(
    [["nothing"], ["written by a second name that is gone", "written by a second name"], ["permissions"]]
)
@example([["nothing"], ["written by a second name that is another file's"], ["written"]])
@example(
    [["written by a second name"], ["written"], ["written by a second name"], ["the second name removed"]]
)
def test_looking_at_what_has_changed_finds_what_looking_at_all_does(
    tmp_path: Path, others: list[str], looks: list[list[str]]
) -> None:
    """Both for a step's files and for versions of the folder."""
    with TemporaryDirectory(dir=tmp_path) as place:
        top = Path(place, "top")
        make_folder(top)
        watch = FolderWatch(str(top))
        files = WorkdirFiles(str(top), watch)
        versions = WorkdirVersions(str(top), f"{place}/store", max_bytes=2**24, max_file=2**20, changes=watch)
        for number, actions in enumerate([[], *looks]):
            for each in actions:
                with suppress(OSError):
                    ACTIONS[each](top)
            budget, alone = InspectionBudget(60), WorkdirFiles(str(top))
            marks, expected = files.marks(), alone.marks()
            assert expected is not None
            assert expected == marks
            assert alone.versions(expected, budget) == files.versions(
                expected if marks is None else marks, budget
            )
            assert versions.record(number, or_last=True).kept
            assert {path: entry.signature for path, entry in scan(str(top)).items()} == {
                path: entry.signature for path, entry in versions._last.items()
            }
            kept = Path(place, "store", "contents")
            held = {path: entry for path, entry in versions._last.items() if entry.kind == "file"}
            assert {path: (top / path).read_bytes() for path in held} == {
                path: (kept / entry.content).read_bytes() for path, entry in held.items()
            }
        watch.end()


def test_only_what_has_changed_is_looked_at(
    top: Path, watch: FolderWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = WorkdirFiles(str(top), watch)
    versions = WorkdirVersions(
        str(top), str(top.parent / "store"), max_bytes=2**20, max_file=2**20, changes=watch
    )
    files.versions(files.marks() or {}, InspectionBudget(60))
    versions.record(0)
    (top / "f3").write_text("y")
    (top / "inner" / "new").touch()
    looked = set[str]()
    monkeypatch.setattr(workdir_files, "_lstat", lambda path: (looked.add(path), os.lstat(path))[1])
    monkeypatch.setattr(workdir_files, "_scandir", None)
    monkeypatch.setattr("cenote_worker.jail.workdir.tree._scandir", None)
    files.versions(files.marks() or {}, InspectionBudget(60))
    assert {"f3", "inner", "inner/new"} == {str(Path(each).relative_to(top)) for each in looked}
    assert versions.record(1, or_last=True).kept


def test_which_paths_have_changed(top: Path, watch: FolderWatch) -> None:
    first = watch.moment(FEW)
    assert first is not None
    assert [] == watch.changed_since(first)
    (top / "f3").write_text("y")
    second = watch.moment(FEW)
    assert second is not None
    (top / "inner" / "new").touch()
    assert watch.moment(FEW) is not None
    assert ["inner/new", "f3"] == watch.changed_since(first)
    assert ["inner/new"] == watch.changed_since(second)


@pytest.mark.parametrize(
    "kind", ["removed", "renamed", "replaced", "linked", "a folder made", "a folder moved"]
)
def test_what_is_known_of_no_path(top: Path, watch: FolderWatch, kind: str) -> None:
    before = watch.moment(FEW)
    assert before is not None
    CHANGES[kind](top)
    assert watch.moment(FEW) is not None
    assert watch.changed_since(before) is None


def test_names_of_processes() -> None:
    """A process that took another name has its own again."""
    former = become_frozen()
    assert "frozen copy\n" == Path("/proc/self/comm").read_text()
    run_as(former)
    assert former + b"\n" == Path("/proc/self/comm").read_bytes()
    assert is_another_process_running()
