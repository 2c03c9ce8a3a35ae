"""Uses of notebooks besides computing, in a jail: updated displays, processes that start afresh."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.runtime import PythonRuntime

DEFINITIONS = """
import enum, multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
factor = 3
def helper(x): return x * factor
def work(x): return helper(x) + 1
class Kind(enum.Enum):
    A = 1
@dataclass
class Point:
    x: int
    def moved(self, by): return Point(self.x + by)
def make(x): return Point(x)
"""


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime() as made:
        made.execute(DEFINITIONS)
        yield made


def shown(runtime: PythonRuntime, code: str) -> tuple[str, list[object]]:
    result = runtime.execute(code)
    assert result.error is None, str(result.error)
    return result.stdout, [bundle.get("text/html", bundle["text/plain"]) for bundle in result.outputs]


def test_a_display_is_replaced_in_the_result(runtime: PythonRuntime) -> None:
    code = "h = display('a', display_id=True)\ndisplay('b')\nfor i in range(200): h.update(i)"
    assert ("", ["199", "'b'"]) == shown(runtime, code)


def test_what_is_cleared_is_not_in_the_result(runtime: PythonRuntime) -> None:
    code = (
        "import os\nfrom IPython.display import HTML, clear_output\nprint('gone'); os.system('echo gone')\n"
        "for i in range(100):\n    clear_output(wait=True); print(i); display(HTML(f'<b>{i}</b>'))"
    )
    assert ("99\n", ["<b>99</b>"]) == shown(runtime, code)


def test_what_displays_comes_along_to_a_branch() -> None:
    """Unchanged: the classes are found there by their names."""
    with PythonRuntime() as runtime:
        runtime.execute(
            "from IPython.display import HTML, Image\nh = HTML('x')\nd = display(h, display_id=True)"
        )
        with runtime.fork() as branch:
            assert () == branch.carried.differing
            assert ("", ["new"]) == shown(branch, "d.update(HTML('new'))")


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("with mp.get_context('spawn').Pool(1) as pool: print(pool.map(work, [1, 2]))", "[4, 7]"),
        ("with mp.get_context('spawn').Pool(1) as pool: print(pool.map(lambda x: x + factor, [1]))", "[4]"),
        ("with mp.get_context('spawn').Pool(1) as pool: print(pool.map(make, [1]) == [Point(1)])", "True"),
        (
            "with mp.get_context('spawn').Pool(1) as pool: print(pool.map(Point(1).moved, [1]))",
            "[Point(x=2)]",
        ),
        ("with mp.get_context('spawn').Pool(1) as pool: print(pool.map(repr, [Kind.A]))", "['<Kind.A: 1>']"),
        (
            "with ProcessPoolExecutor(1, mp_context=mp.get_context('forkserver')) as pool:\n"
            "    print(list(pool.map(work, [1])))",
            "[4]",
        ),
        ("with mp.Pool(1) as pool: print(pool.map(work, [1, 2]))", "[4, 7]"),
    ],
)
def test_processes_that_start_afresh_have_what_cells_define(
    runtime: PythonRuntime, code: str, printed: str
) -> None:
    assert (f"{printed}\n", []) == shown(runtime, code)


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize(
    "call", ["map(os._exit, [3, 3])", "apply(os._exit, (3,))", "imap(os._exit, [3]).next()"]
)
def test_a_pool_whose_worker_dies_gives_an_error(runtime: PythonRuntime, method: str, call: str) -> None:
    """In plain Python the call waits forever."""
    result = runtime.execute(
        f"import os\nwith mp.get_context('{method}').Pool(1) as pool: pool.{call}", timeout=60
    )
    assert result.error is not None
    assert ("ProcessError", True) == (result.error.type, "ended with status 3" in result.error.message)


def test_a_worker_that_cannot_read_its_task_gives_an_error(runtime: PythonRuntime) -> None:
    """For example, a module that exists in this process only."""
    code = (
        "import sys, types\nmodule = types.ModuleType('only_here')\nsys.modules['only_here'] = module\n"
        "def f(x): return x\nf.__module__ = 'only_here'; module.f = f\n"
        "with mp.get_context('spawn').Pool(1) as pool: pool.map(f, [1])"
    )
    result = runtime.execute(code, timeout=20)
    assert result.error is not None
    assert ("ProcessError", True) == (result.error.type, "only_here" in result.stderr)
