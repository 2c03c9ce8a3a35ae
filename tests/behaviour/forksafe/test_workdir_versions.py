"""Versions of a folder: recorded by changes, restored exactly, whatever the folder contains."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote import PythonRuntime, SandboxPolicy
from cenote_worker.jail.workdir import tree
from cenote_worker.jail.workdir.version_store import VersionLost
from cenote_worker.jail.workdir.versions import SkippedPath, WorkdirVersions

MIB = 2**20
OLD = 1_000_000_000_123_456_789
Picture = dict[bytes, tuple[object, ...]]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def versions(top: Path) -> WorkdirVersions:
    return versions_of(top)


def versions_of(top: Path, max_bytes: int = 100 * MIB, max_file: int = 10 * MIB) -> WorkdirVersions:
    return WorkdirVersions(str(top), str(top.parent / "store"), max_bytes=max_bytes, max_file=max_file)


def picture(top: Path) -> Picture:
    """Everything in a folder that a restore must bring back."""
    found: Picture = {}
    for folder, names, files in os.walk(os.fsencode(top)):
        for name in [*names, *files, b"."]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = (
                os.readlink(path) if stat.S_ISLNK(status.st_mode)
                else Path(os.fsdecode(path)).read_bytes() if stat.S_ISREG(status.st_mode)
                else b""
            )  # fmt: skip
            found[path] = (status.st_mode, status.st_mtime_ns, content)
    return found


def problems(skipped: tuple[SkippedPath, ...]) -> dict[str, str]:
    return {one.path: one.reason for one in skipped}


# -- exact restores ---------------------------------------------------------------------------------------


def furnish(top: Path) -> None:
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "data.csv").write_text("1,2\n")
    (top / "a" / "b" / "run.sh").write_text("echo")
    (top / "a" / "b" / "run.sh").chmod(0o750)
    (top / "link").symlink_to("a/data.csv")
    (top / "loop").symlink_to("loop")
    (top / os.fsdecode(b"caf\xe9")).write_text("not UTF-8")
    (top / "empty").mkdir(mode=0o711)
    os.utime(top / "a" / "data.csv", ns=(OLD, OLD))
    os.utime(top / "empty", ns=(OLD, OLD))
    os.utime(top / "link", ns=(OLD, OLD), follow_symlinks=False)


def ransack(top: Path) -> None:
    (top / "a" / "data.csv").write_text("9,9\n9,9\n")
    (top / "a" / "b" / "run.sh").unlink()
    (top / "a" / "b").rmdir()
    (top / "a" / "b").write_text("a file where a folder was")
    (top / "link").unlink()
    (top / "link").mkdir()
    (top / "link" / "inside").write_text("x")
    (top / os.fsdecode(b"caf\xe9")).chmod(0o640)
    (top / "empty").rmdir()
    (top / "extra" / "deep").mkdir(parents=True)
    (top / "extra" / "deep" / "file").write_text("x")


def test_a_version_comes_back_exactly_and_so_does_what_it_replaced(
    top: Path, versions: WorkdirVersions
) -> None:
    """Files, folders, links, modes and times; extra paths are removed; the restore can be undone."""
    furnish(top)
    before = picture(top)
    assert versions.record(0).kept
    ransack(top)
    after = picture(top)
    assert versions.record(1).kept
    for version, wanted in [(0, before), (1, after), (0, before), (1, after)]:
        assert () == versions.restore(version).skipped
        assert wanted == picture(top)


def test_the_last_version_does_where_nothing_has_changed(top: Path, versions: WorkdirVersions) -> None:
    """It must still exist, and the directory must be unchanged."""
    furnish(top)
    assert 1 == versions.record(1, or_last=True).version
    assert 1 == versions.record(2, or_last=True).version
    ransack(top)
    assert 3 == versions.record(3, or_last=True).version
    versions.drop(3)
    again = versions.record(4, or_last=True)
    assert (True, 4) == (again.kept, again.version)
    assert [1, 4] == sorted(versions.numbers())


NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/e/a"])
ACTIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.binary(max_size=3)),
    st.tuples(st.just("delete"), NAMES, st.none()),
    st.tuples(st.just("link"), NAMES, NAMES),
    st.tuples(st.just("symlink"), NAMES, NAMES),
    st.tuples(st.just("mode"), NAMES, st.sampled_from([0o600, 0o755, 0o400])),
    st.tuples(st.just("move"), NAMES, NAMES),
)


def act(top: Path, action: tuple[str, str, object]) -> None:
    kind, name, argument = action
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        match kind:
            case "write":
                path.write_bytes(argument)
            case "delete":
                path.unlink()
            case "link":
                path.hardlink_to(top / str(argument))
            case "symlink":
                path.symlink_to(str(argument))
            case "mode":
                path.chmod(argument)
            case "move":
                (top / str(argument)).parent.mkdir(parents=True, exist_ok=True)
                path.rename(top / str(argument))
    except OSError:
        pass


@settings(max_examples=20)
@given(
    steps=st.lists(st.lists(ACTIONS, max_size=4), min_size=1, max_size=5),
    visits=st.lists(st.integers(0, 4), max_size=5),
)
def test_every_recorded_state_can_be_visited_in_any_order(
    steps: list[list[tuple[str, str, object]]], visits: list[int]
) -> None:
    """Whatever changed between the records, and whichever version was visited before."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder, "workspace")
        top.mkdir()
        versions, pictures = versions_of(top), []
        for number, actions in enumerate(steps):
            for action in actions:
                act(top, action)
            assert versions.record(number).kept
            pictures.append(picture(top))
        for visit in visits:
            number = visit % len(pictures)
            assert () == versions.restore(number).skipped
            assert pictures[number] == picture(top)


def test_what_is_in_place_is_not_touched(top: Path, versions: WorkdirVersions) -> None:
    """Nor is it read: the cost of a restore is that of the differences."""
    (top / "same").write_text("x")
    (top / "other").write_text("x")
    versions.record(0)
    before = (top / "same").stat()
    (top / "other").write_text("yy")
    assert 1 == versions.restore(0).changed
    assert before.st_ctime_ns == (top / "same").stat().st_ctime_ns
    assert before.st_ino == (top / "same").stat().st_ino


def test_where_nothing_has_changed_nothing_is_written(top: Path, versions: WorkdirVersions) -> None:
    """A rollback waits for the restore, in a process in which each written page is copied first."""
    (top / "folder").mkdir()
    (top / "folder" / "file").write_text("text")
    versions.record(1)
    before = Path(top.parent, "store", "versions", "1.json").stat()
    assert 0 == versions.restore(1).changed
    assert before == Path(top.parent, "store", "versions", "1.json").stat()


def test_what_a_version_does_not_have_is_told_where_nothing_has_changed_too(top: Path) -> None:
    versions = versions_of(top, max_file=1)
    (top / "large").write_text("more than a byte")
    versions.record(1)
    os.mkfifo(top / "pipe")
    versions.record(2)
    assert ["large"] == list(problems(versions.restore(1).skipped))
    os.mkfifo(top / "pipe")
    versions.record(3)
    assert {"large", "pipe"} == set(problems(versions.restore(3).skipped))


def test_an_open_file_sees_its_old_bytes(top: Path, versions: WorkdirVersions) -> None:
    """A file that was changed in place stays the same file."""
    (top / "data").write_text("old")
    versions.record(0)
    with open(top / "data") as opened:
        (top / "data").write_text("newer")
        versions.restore(0)
        assert "old" == opened.read()


def test_names_of_one_file_stay_names_of_one_file(top: Path, versions: WorkdirVersions) -> None:
    """And a name that was linked to another file later gets its own file back, without change to the other."""
    (top / "one").write_text("1")
    (top / "two").hardlink_to(top / "one")
    (top / "three").write_text("3")
    versions.record(0)
    (top / "two").unlink()
    (top / "three").unlink()
    (top / "three").hardlink_to(top / "one")
    versions.restore(0)
    assert ("1", "1", "3") == tuple((top / name).read_text() for name in ("one", "two", "three"))
    assert (top / "one").samefile(top / "two")
    assert 1 == (top / "three").stat().st_nlink


def test_holes_stay_holes(top: Path, versions: WorkdirVersions) -> None:
    """A sparse file of a terabyte is as small in the store as it is on the disk."""
    with open(top / "sparse", "wb") as file:
        file.seek(MIB)
        file.write(b"here")
        file.truncate(2**40)
    assert () == versions.record(0).skipped
    (top / "sparse").unlink()
    assert () == versions.restore(0).skipped
    assert 2**40 == (top / "sparse").stat().st_size
    assert MIB > versions.cost()
    with open(top / "sparse", "rb") as file:
        file.seek(MIB)
        assert b"here\0" == file.read(5)


# -- changes ----------------------------------------------------------------------------------------------


def test_only_what_changed_is_copied(top: Path, versions: WorkdirVersions) -> None:
    """A content of several versions is stored once."""
    for number in range(20):
        (top / str(number)).write_text("x" * 1000)
    assert 20 == versions.record(0).copied
    cost = versions.cost()
    assert 0 == versions.record(1).copied
    (top / "7").write_text("y")
    recorded = versions.record(2)
    assert (1, 1) == (recorded.copied, recorded.bytes)
    assert cost + 20_000 > versions.cost()


def test_a_change_with_a_forged_time_is_seen(top: Path, versions: WorkdirVersions) -> None:
    """Same size, same modification time: the change time cannot be set."""
    (top / "data").write_text("old")
    status = (top / "data").stat()
    versions.record(0)
    (top / "data").write_text("new")
    os.utime(top / "data", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert 1 == versions.record(1).copied


def test_changes_in_quick_succession_are_all_seen(top: Path, versions: WorkdirVersions) -> None:
    """File systems may stamp a file twice with the same time within a tick of the kernel."""
    for number in range(30):
        (top / "data").write_text(f"{number:03}")
        assert 1 == versions.record(number).copied


def test_writes_through_memory_are_seen(top: Path, versions: WorkdirVersions) -> None:
    """They change no time; also when the mapping is gone before the next record."""
    (top / "map").write_bytes(b"0" * 4096)
    with open(top / "map", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    for number in range(4):
        mapped[0] = ord(str(number))
        if number == 3:
            mapped.close()
        versions.record(number)
    for number in range(4):
        versions.restore(number)
        assert str(number).encode() == (top / "map").read_bytes()[:1]


# -- several processes ------------------------------------------------------------------------------------


def test_a_copy_of_the_process_knows_what_the_original_recorded_later(
    top: Path, versions: WorkdirVersions
) -> None:
    """A copy older than its target can go forward again; contents that it drops are freed."""
    (top / "data").write_text("first")
    versions.record(0)
    begin, end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.close(end)
        os.read(begin, 1)
        versions.restore(0)
        first = (top / "data").read_text()
        versions.restore(1)
        versions.drop(0)
        os._exit(0 if (first, (top / "data").read_text()) == ("first", "second") else 1)
    (top / "data").write_text("second")
    versions.record(1)
    os.close(end)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with pytest.raises(VersionLost):
        versions_of(top).restore(0)
    assert 1 == len(list((top.parent / "store" / "contents").iterdir()))


# -- bounds -----------------------------------------------------------------------------------------------


def test_what_is_dropped_is_freed(top: Path, versions: WorkdirVersions) -> None:
    """Once no version needs it any more."""
    for number in range(4):
        (top / "data").write_text(str(number // 2))
        versions.record(number)
    contents = top.parent / "store" / "contents"
    counts = []
    for number in (0, 3, 1, 2):
        versions.drop(number)
        counts.append(len(list(contents.iterdir())))
    assert [3, 2, 1, 0] == counts
    assert 0 == versions.cost()


def test_a_version_can_be_recorded_again(top: Path, versions: WorkdirVersions) -> None:
    """The later state is meant; the earlier one is dropped."""
    (top / "data").write_text("early")
    versions.record(0)
    (top / "data").write_text("late")
    versions.record(0)
    (top / "data").write_text("later still")
    versions.restore(0)
    assert "late" == (top / "data").read_text()
    assert 1 == len(list((top.parent / "store" / "contents").iterdir()))


def test_a_file_at_the_limit_is_kept_and_one_past_it_is_not(top: Path) -> None:
    """A skipped file is named, unchanged by a restore, and named again."""
    versions = versions_of(top, max_file=8192)
    (top / "at").write_bytes(b"x" * 8192)
    (top / "past").write_bytes(b"x" * 8193)
    assert {"past": "it has more than 8192 bytes"} == problems(versions.record(0).skipped)
    (top / "at").unlink()
    (top / "past").write_bytes(b"later")
    restored = versions.restore(0)
    assert {"past": "this version does not have it: it has more than 8192 bytes"} == problems(
        restored.skipped
    )
    assert (8192, b"later") == ((top / "at").stat().st_size, (top / "past").read_bytes())


def test_all_versions_together_are_bounded(top: Path) -> None:
    """A file that does not fit is tried again by the next record, when there may be room."""
    versions = versions_of(top, max_bytes=64 * 1024)
    (top / "one").write_bytes(b"1" * 40_000)
    versions.record(0)
    (top / "one").write_bytes(b"2" * 40_000)
    assert {"one": "all versions together have at most 65536 bytes"} == problems(versions.record(1).skipped)
    versions.drop(0)
    assert () == versions.record(1).skipped


def test_too_many_files_are_no_version(
    top: Path, versions: WorkdirVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit it is a version."""
    monkeypatch.setattr(tree, "MAX_ENTRIES", 4)
    for name in "abc":
        (top / name).touch()
    assert versions.record(0).kept
    (top / "d").touch()
    recorded = versions.record(1)
    assert (False, {"": "there are too many files"}) == (recorded.kept, problems(recorded.skipped))


# -- hostile folders --------------------------------------------------------------------------------------


def test_what_is_no_file_is_named(top: Path, versions: WorkdirVersions) -> None:
    """Pipes and sockets are neither opened nor waited for."""
    os.mkfifo(top / "pipe")
    os.mknod(top / "socket", stat.S_IFSOCK | 0o600)
    reasons = problems(versions.record(0).skipped)
    assert dict.fromkeys(["pipe", "socket"], "it is neither file, folder nor link") == reasons


def test_a_deep_tree_ends_where_it_gets_too_deep(top: Path, versions: WorkdirVersions) -> None:
    """Neither descriptors nor the stack grow with it."""
    folder = top
    for _ in range(tree.MAX_DEPTH + 20):
        folder = folder / "d"
        folder.mkdir()
    recorded = versions.record(0)
    assert recorded.kept
    assert ["it is more than 64 folders deep"] == list(problems(recorded.skipped).values())


def test_a_folder_that_becomes_a_link_is_not_followed(
    top: Path, versions: WorkdirVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swapped between the look and the opening: the link's target stays outside."""
    (top.parent / "outside").mkdir()
    (top.parent / "outside" / "secret").write_text("x")
    (top / "trap").mkdir()
    plain = os.open

    def swapping(name: str, flags: int, **options: int) -> int:
        if name == "trap" and not (top / "trap").is_symlink():
            (top / "trap").rmdir()
            (top / "trap").symlink_to(top.parent / "outside")
        return plain(name, flags, **options)

    monkeypatch.setattr(tree, "_open_at", swapping)
    recorded = versions.record(0)
    assert (True, 0, ["trap"]) == (recorded.kept, recorded.copied, list(problems(recorded.skipped)))


def test_a_restore_writes_through_no_link(top: Path, versions: WorkdirVersions) -> None:
    """A folder that was swapped for a link to another is made a folder again; the other stays unchanged."""
    (top / "folder").mkdir()
    (top / "folder" / "data").write_text("ours")
    versions.record(0)
    outside = top.parent / "outside"
    outside.mkdir()
    (outside / "data").write_text("theirs")
    (top / "folder" / "data").unlink()
    (top / "folder").rmdir()
    (top / "folder").symlink_to(outside)
    assert () == versions.restore(0).skipped
    assert ("ours", "theirs") == ((top / "folder" / "data").read_text(), (outside / "data").read_text())


def test_a_spoilt_list_is_a_lost_version(top: Path, versions: WorkdirVersions) -> None:
    """Then nothing is changed. A list with paths out of the folder is invalid."""
    (top / "data").write_text("x")
    versions.record(0)
    path = top.parent / "store" / "versions" / "0.json"
    for text in ("", "[]", "{", '{"a": 1}', '{"../b": [[1, 2, 3, 4, 5, 6], "", ""]}'):
        path.write_text(text)
        with pytest.raises(VersionLost):
            versions.restore(0)
    assert "x" == (top / "data").read_text()


def test_a_lost_content_is_the_problem_of_its_path_alone(top: Path, versions: WorkdirVersions) -> None:
    """Everything else comes back, and a file in its place stays."""
    (top / "data").write_text("x")
    (top / "other").write_text("o")
    versions.record(0)
    for content in (top.parent / "store" / "contents").iterdir():
        if content.read_text() == "x":
            content.unlink()
    (top / "data").write_text("yy")
    (top / "other").write_text("zz")
    assert ["data"] == list(problems(versions.restore(0).skipped))
    assert ("yy", "o") == ((top / "data").read_text(), (top / "other").read_text())


def test_a_store_that_was_removed_is_begun_anew(top: Path, versions: WorkdirVersions) -> None:
    """A cell may empty the folder for temporary files."""
    (top / "data").write_text("x")
    versions.record(0)
    shutil.rmtree(top.parent / "store")
    recorded = versions.record(1)
    assert (True, 1) == (recorded.kept, recorded.copied)
    (top / "data").unlink()
    versions.restore(1)
    assert "x" == (top / "data").read_text()


# -- inside the walls -------------------------------------------------------------------------------------

JAILED = """
import os, tempfile
from cenote_worker.jail.workdir.versions import WorkdirVersions
versions = WorkdirVersions(os.getcwd(), tempfile.gettempdir() + "/.versions", max_bytes=10**7, max_file=10**7)
open("data", "w").write("old"); os.mkdir("closed"); open("closed/in", "w").write("in")
print(versions.record(0).kept)
open("data", "w").write("new"); os.remove("closed/in")
restored = versions.restore(0)
print(open("data").read(), open("closed/in").read(), {one.reason for one in restored.skipped})
"""


LANDLOCK_REASONS = "set()" if os.geteuid() == 0 else "{'its time cannot be set'}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isolation", "reasons"),
    [("strict", "set()"), ("landlock", LANDLOCK_REASONS), ("none", "set()")],
)
def test_it_works_inside_a_jail(isolation: str, reasons: str) -> None:
    """At `landlock`, where jails have no users of their own, file times cannot be set, and the reasons say so."""
    with PythonRuntime(sandbox=SandboxPolicy(isolation=isolation)) as runtime:
        result = runtime.execute(JAILED)
    assert f"True\nold in {reasons}\n" == result.stdout, result.error


def test_another_process_goes_on_from_a_version(top: Path, versions: WorkdirVersions) -> None:
    """Unchanged files are not copied, and files changed in between are left unchanged, and recorded."""
    furnish(top)
    versions.record(1)
    successor = versions_of(top)
    successor.learn(1)
    again = successor.record(2, or_last=True)
    assert (1, 0) == (again.version, again.copied)
    (top / "new").write_text("by somebody else")
    successor = versions_of(top)
    successor.learn(1)
    changed = successor.record(3, or_last=True)
    assert (3, 1) == (changed.version, changed.copied)
    assert "by somebody else" == (top / "new").read_text()
    with pytest.raises(VersionLost):
        successor.learn(2)
