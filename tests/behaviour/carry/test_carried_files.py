"""Files of the working directory, carried over from a former state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.carry.moves import carry, ran, versions

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.trace import TREE, file, hidden

TOLD = """
def told(*paths):
    return [
        (os.readlink(path) if os.path.islink(path) else os.path.isfile(path) and open(path).read(),
         oct(os.lstat(path).st_mode), os.lstat(path).st_mtime_ns)
        if os.path.lexists(path) else None
        for path in paths
    ]
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=("numpy",), disk="16MiB")) as made:
        yield made


@pytest.fixture
def runtime(shared: PythonRuntime) -> PythonRuntime:
    """Its first step imports modules that the others use."""
    shared.reset()
    ran(shared, f"import mmap, os, shutil\n{TOLD}")
    return shared


def kept(runtime: PythonRuntime, code: str) -> int:
    """The step that runs this code; a copy of its state is kept."""
    ran(runtime, code)
    return runtime.snapshot().step


def test_files_are_what_they_were_and_others_stay(runtime: PythonRuntime) -> None:
    """Content, mode and time; links and folders; files that did not exist are removed."""
    made = "os.makedirs('d/e'); open('d/e/f', 'w').write('old'); os.chmod('d/e/f', 0o640); os.symlink('x', 'link')"
    step = kept(runtime, f"{made}; open('p', 'w').write('p'); open('other', 'w').write('1')")
    paths = ("p", "d", "d/e", "d/e/f", "link", "new")
    there = runtime.execute(f"told{paths[:1] + paths[3:]}").value
    at = [file(path) for path in paths]
    then = versions(runtime, *at)
    ran(
        runtime, "shutil.rmtree('d'); open('d', 'w').close(); os.unlink('link'); open('p', 'a').write('more')"
    )
    ran(runtime, "open('new', 'w').close(); open('other', 'w').write('2')")
    assert "" == carry(runtime, step, *at)
    assert then == versions(runtime, *at)
    assert there == runtime.execute(f"told{paths[:1] + paths[3:]}").value
    assert "2" == runtime.execute("print(open('other').read(), end='')").stdout


def test_a_file_that_is_written_over_stays_the_file_that_it_is_in_its_folder(runtime: PythonRuntime) -> None:
    step = kept(runtime, "for name in 'abc': written = open(name, 'w').write(name)")
    order = runtime.execute("os.listdir('.')").value
    ran(runtime, "written = open('b', 'w').write('longer')")
    assert "" == carry(runtime, step, file("b"))
    assert (order, "b") == (runtime.execute("os.listdir('.')").value, runtime.files.read("b").decode())


REFUSED = {
    "it has several names": ("open('p', 'w').close(); os.link('p', 'q')", "os.unlink('q')"),
    "it is neither file, folder nor link": ("os.mkfifo('p')", "os.unlink('p')"),
    "it has more than 4194304 bytes": ("open('p', 'wb').write(b'x' * (2**22 + 1))", "open('p', 'w').close()"),
    "a process has it open": ("open('p', 'w').close()", "h = open('p', 'a')"),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_may_be_noticed_or_is_not_there_is_refused(runtime: PythonRuntime, reason: str) -> None:
    """With the reason; nothing changes."""
    made, changed = REFUSED[reason]
    step = kept(runtime, f"open('other', 'w').write('1'); {made}")
    ran(runtime, f"{changed}; open('other', 'w').write('2')")
    now = versions(runtime, file("p"), file("other"))
    assert reason == carry(runtime, step, file("p"), file("other"))
    assert now == versions(runtime, file("p"), file("other"))


def test_a_file_that_is_mapped_is_refused(runtime: PythonRuntime) -> None:
    """Under any name: code that maps it continues with that very file."""
    step = kept(runtime, "open('p', 'w').write('p')")
    opened = "with open('p', 'r+b') as opened: seen = mmap.mmap(opened.fileno(), 1, access=mmap.ACCESS_READ)"
    ran(runtime, f"{opened}\nos.rename('p', 'q')")
    assert "a process has it open" == carry(runtime, step, file("p"))
    ran(runtime, "seen.close()")
    assert "" == carry(runtime, step, file("p"))


def test_a_file_that_was_open_under_another_name_is_that_file_behind_a_return(runtime: PythonRuntime) -> None:
    """It gets its name back, and no other file takes it."""
    step = kept(runtime, "h = open('a', 'w')")
    ran(runtime, "os.rename('a', 'b')")
    runtime.rollback(step)
    ran(runtime, "h.write('through it'); h.flush()")
    assert ("['a']", b"through it") == (runtime.execute("os.listdir('.')").value, runtime.files.read("a"))


def test_files_elsewhere_and_all_files_at_once_are_refused(runtime: PythonRuntime) -> None:
    step = kept(runtime, "open('p', 'w').close()")
    assert "only files of the working directory are kept" == carry(runtime, step, file("/tmp/p"))
    assert "there are too many files to tell which" == carry(runtime, step, TREE)
    assert "files come over by themselves" == carry(runtime, step, file("p"), hidden("cwd"))


def test_a_version_that_is_gone_is_told(runtime: PythonRuntime) -> None:
    """Cells can write to the store."""
    step = kept(runtime, "open('p', 'w').close()")
    ran(runtime, "open('p', 'a').write('x'); import glob")
    ran(runtime, "for each in glob.glob('/tmp/.cenote-versions/versions/*'): os.unlink(each)")
    assert "of the working directory is lost" in carry(runtime, step, file("p"))
