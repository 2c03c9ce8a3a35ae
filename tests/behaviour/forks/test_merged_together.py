"""After a merge the source is as if it had run the branch's cells; values that were not merged are named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.runtime import Merge, MergeConflictError, PythonRuntime

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]


@pytest.fixture
def merged(make: Make, fork: Fork) -> Callable[..., tuple[PythonRuntime, Merge]]:
    """A source that has run a cell, and has merged a branch that has run another."""

    def made(source_cell: str, branch_cell: str, meanwhile: str = "") -> tuple[PythonRuntime, Merge]:
        source = make()
        assert source.execute(source_cell).success
        (branch,) = fork(source)
        result = branch.execute(branch_cell)
        assert result.success, result.error
        if meanwhile:
            assert source.execute(meanwhile).success
        return source, source.merge(branch)

    return made


Merged = Callable[..., tuple[PythonRuntime, Merge]]


def value(runtime: PythonRuntime, expression: str) -> str | None:
    result = runtime.execute(expression)
    assert result.success, result.error
    return result.value


def test_objects_of_several_names_stay_one(merged: Merged) -> None:
    """Changed or not, if they share objects in the branch: a view with its array, functions with their variable."""
    source, merge = merged(
        "import numpy as np\nqueue = []; workers = {'a': queue}\ninner = []; one = [inner]; other = [inner]\n"
        "array = np.arange(4.0); view = array[1:]\n"
        "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n"
        "    def now(): return n\n    return up, now\nup, now = counter()",
        "queue.append('first'); one.append(1); array[1] = 9; up()",
    )
    assert ((), {}) == (merge.notes, merge.left)
    source.execute("queue.append('second'); other[0].append('seen'); array[2] = 8; up()")
    assert "(['first', 'second'], [['seen'], 1], [9.0, 8.0, 3.0], 2)" == value(
        source, "workers['a'], one, view.tolist(), now()"
    )


def test_functions_have_the_source_s_globals(merged: Merged) -> None:
    """And use each other, and their class."""
    source, _ = merged(
        "factor = 2\nclass Shape:\n    def area(self): return 1\nshape = Shape()",
        "def area(shape): return shape.area() * factor\ndef twice(shape): return 2 * area(shape)\n"
        "Shape.side = lambda self: 3",
        "unit = 'cm'",
    )
    source.execute("factor = 5")
    assert "(10, True, 3, 'cm')" == value(
        source, "twice(shape), isinstance(shape, Shape), shape.side(), unit"
    )


def test_imports_settings_and_annotations_come(merged: Merged) -> None:
    """Modules by the names that they were given, with parts that were imported below them."""
    source, merge = merged(
        "import os, warnings, decimal\nfirst: int = 1",
        "import xml.dom.minidom, json as js\nfrom math import floor as fl\nsecond: str = ''\n_hidden = 4\n"
        "os.environ['MODE'] = 'branch'; warnings.simplefilter('error'); decimal.getcontext().prec = 5",
    )
    assert {"environ", "warnings", "decimal"} == {*merge.states}
    assert "('a', 3, '[4]', ['first', 'second'])" == value(
        source,
        "xml.dom.minidom.parseString('<a/>').documentElement.tagName, fl(3.5), js.dumps([_hidden]), "
        "sorted(__annotations__)",
    )
    assert "('branch', 'error', 5)" == value(
        source, "os.environ['MODE'], warnings.filters[0][0], decimal.getcontext().prec"
    )


def test_files_come(merged: Merged) -> None:
    """Written, removed, of modules that come with them; properties of a file besides its content are named."""
    source, merge = merged(
        "import os\nopen('kept.txt', 'w').write('1'); open('gone.txt', 'w').write('1')",
        "open('kept.txt', 'a').write('2'); os.remove('gone.txt'); os.makedirs('deep/er')\n"
        "open('deep/er/new.txt', 'w').write('3'); open('own.py', 'w').write('def f(): return 7')\nimport own\n"
        "open('run.sh', 'w').write(''); os.chmod('run.sh', 0o755); os.makedirs('empty')",
    )
    assert {"kept.txt", "gone.txt", "deep/er/new.txt", "own.py", "run.sh"} == {*merge.files}
    assert ({"empty"}, True) == ({*merge.left}, any(note.startswith("run.sh ") for note in merge.notes))
    assert "('12', False, '3', 7)" == value(
        source,
        "open('kept.txt').read(), os.path.exists('gone.txt'), open('deep/er/new.txt').read(), own.f()",
    )


def test_a_file_that_both_have_written_is_a_conflict(make: Make, fork: Fork) -> None:
    """Decided like one of variables; the next merge compares with this one."""
    source = make()
    source.execute("open('n.txt', 'w').write('0')")
    (branch,) = fork(source)
    branch.execute("open('n.txt', 'w').write('theirs')")
    source.execute("open('n.txt', 'w').write('ours')")
    with pytest.raises(MergeConflictError, match=r"n\.txt"):
        source.merge(branch)
    assert ((), ("n.txt",)) == (source.merge(branch, on_conflict="ours").files, ("n.txt",))
    assert "'ours'" == value(source, "open('n.txt').read()")
    branch.execute("open('n.txt', 'w').write('theirs again')")
    assert ("n.txt",) == source.merge(branch).files
    assert "'theirs again'" == value(source, "open('n.txt').read()")
    assert () == source.merge(branch).files


def test_what_does_not_come_is_named(merged: Merged) -> None:
    """State of libraries, handlers, files elsewhere, random numbers, and what this runtime has changed itself."""
    source, merge = merged(
        "import json, logging, random, tempfile\nshared = []; mine = [shared]; theirs = [shared]",
        "json.tries = 3; logging.basicConfig(level=10); random.seed(1)\n"
        "open(tempfile.gettempdir() + '/elsewhere', 'w').write('1'); theirs.append(1)",
        "mine.append(2)",
    )
    assert {"module json", "the state of logging"} <= {*merge.left}
    assert any(path.endswith("/elsewhere") for path in merge.left)
    told = " ".join(merge.notes)
    assert all(text in told for text in ("random numbers", "theirs shared objects with mine"))
    assert "([[], 2], [[], 1])" == value(source, "mine, theirs")


@pytest.mark.slow
def test_what_the_source_cannot_make_is_left_and_the_rest_comes(merged: Merged) -> None:
    """A template of Jinja can be pickled, and its pickle cannot be loaded."""
    source, merge = merged(
        "x = 1",
        "import jinja2\nx = 2; env = jinja2.Environment(); t = env.from_string('a'); y = [3]\nopen('f', 'w').close()",
    )
    assert "(2, [3])" == value(source, "x, y")
    assert {"x", "y"} <= {*merge.taken}
    assert ("f",) == merge.files
    assert "cannot be rebuilt" in merge.left["t"]
    assert "False" == value(source, "'t' in globals()")


def test_a_merge_is_repeated_in_later_jails(merged: Merged) -> None:
    """Like other values that were put in."""
    source, _ = merged("a = []; b = [a]", "a.append(1)\ndef f(): return len(a)")
    source.reset()
    source.execute("a.append(2)")
    assert "(2, [[1, 2]])" == value(source, "f(), b")
