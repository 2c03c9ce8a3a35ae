"""The working directory is rolled back with the namespace."""

from __future__ import annotations

import pytest
from tests.support.snapshots.fixtures import MakeRuntime

from cenote.runtime import PythonRuntime
from cenote_worker.execution.results import ExecutionResult

WRITE = "import os, pathlib\nP = pathlib.Path\nP('a').write_text('one'); os.makedirs('d'); P('d/b').write_text('two')"
CHANGE = "P('a').write_text('changed'); P('d/b').unlink(); os.rmdir('d'); P('new').touch()"
SEEN = "P('a').read_text(), P('d/b').read_text(), sorted(os.listdir())"
BEFORE = "('one', 'two', ['a', 'd'])"


def ok(result: ExecutionResult) -> str | None:
    assert result.success, result.error
    return result.value


@pytest.mark.parametrize("isolation", ["strict", "landlock"])
def test_a_rollback_brings_files_back(make_runtime: MakeRuntime, isolation: str) -> None:
    """Contents, names and folders; undoing the rollback restores what was there before it."""
    runtime = make_runtime(isolation=isolation)
    ok(runtime.execute(WRITE))
    ok(runtime.execute(CHANGE))
    assert () == runtime.rollback(1).amiss
    assert BEFORE == ok(runtime.execute(SEEN))
    runtime.rollback(2)
    assert "('changed', ['a', 'new'])" == ok(runtime.execute("P('a').read_text(), sorted(os.listdir())"))


@pytest.mark.parametrize("end", ["os.abort()", "1 / 0"])
def test_a_cell_that_fails_leaves_no_trace_in_files(runtime: PythonRuntime, end: str) -> None:
    """Whether the cell ends its process or is atomic; files written by a child process included."""
    ok(runtime.execute(WRITE))
    result = runtime.execute(f"{CHANGE}; os.system('echo more >> a'); {end}", on_error="rollback")
    assert ("rolled_back", ()) == (result.state, result.news)
    assert BEFORE == ok(runtime.execute(SEEN))


def test_files_that_a_client_brought(runtime: PythonRuntime) -> None:
    """An upload after the last cell is part of the state before the next one."""
    ok(runtime.execute("x = 1"))
    runtime.files.write("in.csv", b"1,2")
    runtime.execute("open('in.csv', 'w'); import os; os._exit(1)")
    assert b"1,2" == runtime.files.read("in.csv")


def test_what_is_too_large_is_told(make_runtime: MakeRuntime) -> None:
    """The state is stored without it; rolling back names it."""
    runtime = make_runtime(disk="16MiB")
    ok(runtime.execute("open('large', 'wb').write(bytes(6 * 2**20)); open('small', 'w').write('x')"))
    ok(runtime.execute("import os; os.remove('large'); os.remove('small')"))
    (line,) = runtime.rollback(1).amiss
    assert line.startswith("large: this version does not have it: it has more than")
    assert "['small']" == ok(runtime.execute("import os; os.listdir()"))


def test_versions_go_with_their_snapshots(runtime: PythonRuntime) -> None:
    """However often the files change, the number of stored versions is bounded by the snapshots."""
    for number in range(14):
        ok(runtime.execute(f"open('a', 'w').write('{number}')"))
    runtime.rollback(12)
    count = "import os, tempfile; len(os.listdir(tempfile.gettempdir() + '/.cenote-versions/versions'))"
    ok(runtime.execute("x = 1"))
    assert int(ok(runtime.execute(count)) or 99) <= 10
    assert "'11'" == ok(runtime.execute("open('a').read()"))


def test_nothing_is_written_for_a_cell_without_files(runtime: PythonRuntime) -> None:
    """One version serves all states with the same files."""
    for _ in range(5):
        ok(runtime.execute("x = 1"))
    count = "import os, tempfile; len(os.listdir(tempfile.gettempdir() + '/.cenote-versions/versions'))"
    assert "1" == ok(runtime.execute(count))
