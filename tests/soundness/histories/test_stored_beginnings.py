"""Patches that begin with a checkpoint: earlier steps are not run again, and everything equals a full run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.places import Place
from tests.support.forks.fixtures import by_value  # noqa: F401  (a fixture)

from cenote.harness import ApplyOptions, ApplyResult, Patch
from cenote.runtime import Function, PythonRuntime
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")

SANDBOX = SandboxPolicy(preload=(), snapshots="none")
"""No state is stored in memory: neither an older state to begin with, nor the present one to go back to."""


class Counted:
    """A runtime that counts its steps when they call `ran`, and one in which the same is run in full."""

    def __init__(self, store: Path | None, **given: Any) -> None:
        """store: None for a platform, which has its own."""
        self.calls: list[int] = []
        ran = Function(self._ran, name="ran", host=True, effect="pure")
        self.given = {"functions": [ran], "sandbox": SANDBOX, **given}
        if store is not None:
            self.given |= {"store": store, "name": "r"}

    def _ran(self, number: int) -> int:
        self.calls.append(number)
        return number

    def made(self) -> PythonRuntime:
        return PythonRuntime(**self.given)


@pytest.fixture
def counted(where: Place, tmp_path: Path) -> Counted:
    if where.is_embedded:
        return Counted(tmp_path / "store")
    return Counted(None, name=f"r-{token_hex(8)}", durable=True)


@pytest.fixture
def runtime(counted: Counted) -> Iterator[PythonRuntime]:
    with counted.made() as runtime:
        yield runtime


def run(runtime: PythonRuntime, *cells: str, stored: int = 0) -> None:
    """stored: the number of cells after which the state is stored."""
    for number, cell in enumerate(cells, 1):
        result = runtime.execute(cell)
        assert result.success, (cell, result.error)
        if number == stored:
            runtime.checkpoint()


def patched(runtime: PythonRuntime, step: int, code: str, options: ApplyOptions | None = None) -> ApplyResult:
    state = runtime.state
    return state.apply(state.plan(Patch.replace_step(step, code)), options)


CELLS = (
    "a = [1]; k = 'slow'; open('f', 'a').write('1')",
    "b = {'a': a}; import random; random.seed(3)",
    "a.append(2); r = random.random()",
    "c = a, b, random.random()",
)

LOOK = "a, b, c[2], r, b['a'] is a, c[0] is a, open('f').read(), random.random()"


def in_full(*cells: str, look: str) -> str | None:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as fresh:
        run(fresh, *cells)
        return fresh.execute(look).value


@pytest.mark.at("embedded", "relayed")
def test_steps_before_it_are_not_run_again(runtime: PythonRuntime) -> None:
    """And later steps give the results of a full run: values, shared objects, random numbers, files."""
    run(runtime, *CELLS, stored=2)
    plan = runtime.state.plan(Patch.replace_step(3, f"{CELLS[2]}; a.append(9)"))
    assert ("checkpoint", 2, [3, 4]) == (plan.strategy, plan.base, [step.number for step in plan.rerun])
    assert "from the checkpoint after step 2" in plan.explain()
    result = runtime.state.apply(plan)
    assert ("applied", (3, 4), ()) == (result.status, result.steps_rerun, result.notes)
    whole = in_full(CELLS[0], CELLS[1], f"{CELLS[2]}; a.append(9)", CELLS[3], look=LOOK)
    assert whole == runtime.execute(LOOK).value


@pytest.mark.at("embedded", "relayed")
@pytest.mark.slow
def test_it_is_begun_with_behind_a_sleep(runtime: PythonRuntime) -> None:
    """Hibernating drops all states in memory."""
    run(runtime, *CELLS[:2])
    runtime.hibernate()
    run(runtime, *CELLS[2:])
    runtime.hibernate()
    assert ("applied", (3, 4)) == (
        (result := patched(runtime, 3, f"{CELLS[2]}; a.append(9)")).status,
        result.steps_rerun,
    )
    whole = in_full(CELLS[0], CELLS[1], f"{CELLS[2]}; a.append(9)", CELLS[3], look=LOOK)
    assert whole == runtime.execute(LOOK).value


@pytest.mark.usefixtures("by_value")
def test_a_process_that_has_no_record_of_the_first_steps_can_begin_with_it(tmp_path: Path) -> None:
    """The checkpoint was all that was known of them when they were restored."""
    kept = Counted(tmp_path)
    with kept.made() as runtime:
        run(runtime, *CELLS[:2], stored=2)
    with PythonRuntime.restore(tmp_path, "r", **_offered(kept)) as runtime:
        run(runtime, *CELLS[2:])
        assert (3, 4) == patched(runtime, 3, f"{CELLS[2]}; a.append(9)").steps_rerun
        whole = in_full(CELLS[0], CELLS[1], f"{CELLS[2]}; a.append(9)", CELLS[3], look=LOOK)
        assert whole == runtime.execute(LOOK).value


def _offered(counted: Counted) -> dict[str, Any]:
    return {key: value for key, value in counted.given.items() if key not in ("store", "name")}


@pytest.mark.at("embedded", "relayed")
def test_what_fails_leaves_the_objects_that_there_were(runtime: PythonRuntime) -> None:
    run(runtime, *CELLS, "mine = object(); before = id(mine)", stored=2)
    result = patched(runtime, 3, "a.append(None + 1)")
    assert ("failed", 5, 5) == (result.status, result.head, runtime.state.head)
    assert "(True, [1, 2])" == runtime.execute("before == id(mine), a").value


@pytest.mark.at("embedded", "relayed")
@pytest.mark.slow
def test_the_state_that_a_patch_has_made_is_stored_and_begun_with_in_turn(runtime: PythonRuntime) -> None:
    run(runtime, *CELLS, stored=2)
    first = patched(runtime, 4, "c = 5")
    assert "applied" == first.status
    runtime.execute("d = c + 1")
    runtime.checkpoint()
    runtime.execute("e = d + 1")
    step = runtime.state.head
    assert (step,) == patched(runtime, step, "e = d + 2").steps_rerun
    assert "(5, 6, 8, [1, 2])" == runtime.execute("c, d, e, a").value


@pytest.mark.slow
def test_states_on_the_way_of_a_patch_are_none(tmp_path: Path) -> None:
    """Each step of a durable runtime is stored, also those that a patch runs: their live state may still have parts
    of the old line.
    """
    with PythonRuntime(store=tmp_path, name="r", durable=True, sandbox=SandboxPolicy(preload=())) as runtime:
        run(runtime, "a = 1", "b = a", "c = [5]", "d = b", "e = c")
        assert {1, 2, 3, 4} <= set(runtime.core.stored())
        result = patched(runtime, 2, "b = a + 1")
        assert ("applied", (2, 4)) == (result.status, result.steps_rerun)
        new = {record.number for record in result.records}
        assert new.isdisjoint(runtime.core.stored())
        run(runtime, "f = d", "g = 1")
        assert runtime.state.head - 1 in runtime.core.stored()


def test_where_nothing_is_run_behind_it_the_state_is_that_of_its_step(tmp_path: Path) -> None:
    """Though modules have been imported for it."""
    with PythonRuntime(store=tmp_path, name="r", sandbox=SandboxPolicy(preload=())) as runtime:
        run(runtime, "import csv; a = [1]", "b = [2]", stored=2)
        run(runtime, "c = [3]")
        runtime.hibernate()
        plan = runtime.state.plan(Patch.remove_step(3))
        assert ("checkpoint", ()) == (plan.strategy, runtime.state.apply(plan).steps_rerun)
        assert 2 == runtime.snapshot("now").step
        runtime.execute("b.append(3)")
        assert (2, "[2]") == (runtime.rollback("now").step, runtime.execute("b").value)


GONE = ("torn", "gone")


@pytest.mark.parametrize("how", GONE)
def test_one_that_cannot_be_read_any_more_is_said_and_done_without(
    runtime: PythonRuntime, tmp_path: Path, how: str
) -> None:
    run(runtime, *CELLS, stored=2)
    state = runtime.state
    plan = state.plan(Patch.replace_step(4, "c = len(a)"))
    (file,) = (tmp_path / "store" / "r").glob("*.checkpoint")
    if how == "gone":
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[:64] = bytes(64)
        file.write_bytes(data)
    result = state.apply(plan)
    assert ("applied", (1, 2, 3, 4)) == (result.status, result.steps_rerun)
    assert "checkpoint after step 2" in result.notes[0]
    assert "(2, [1, 2], '1')" == runtime.execute("c, a, open('f').read()").value


def test_an_older_one_with_numbers_of_another_line_is_none(tmp_path: Path) -> None:
    """A process that continues from an older checkpoint without the record gives further steps the same numbers."""
    kept = Counted(tmp_path)
    with kept.made() as runtime:
        run(runtime, "a = 1", stored=1)
        run(runtime, "a = 2", stored=1)
    with PythonRuntime.restore(tmp_path, "r", checkpoint=1, **_offered(kept)) as runtime:
        run(runtime, "b = a", "c = a + b")
        plan = runtime.state.plan(Patch.replace_step(3, "c = a"))
        assert 2 != plan.base
        assert "applied" == runtime.state.apply(plan).status
        assert "(1, 1, 1)" == runtime.execute("a, b, c").value


LOST: dict[str, tuple[str, str, str]] = {
    "settings of a library": (
        "import decimal; decimal.getcontext().prec = 5",
        "d = str(decimal.Decimal(1) / 3)",
        "d",
    ),
    "an attribute of a module": ("import json; json.mine = [7]", "d = json.mine[0]", "d"),
    "a file elsewhere": ("open('/tmp/elsewhere', 'w').write('x')", "d = open('/tmp/elsewhere').read()", "d"),
    "nobody knows what": ("exec('import json; json.mine = 8')", "d = json.mine", "d"),
    "an order of a set": (
        "s = set('abcdefghijk'); s -= set('bdf'); s |= set('zyx')",
        "d = list(s)",
        "sorted(d)",
    ),
    "a module from another file": (
        "open('mod.py', 'w').write('v = 1'); import mod; open('mod.py', 'w').write('v = 2222')",
        "d = mod.v",
        "d",
    ),
    "attributes of the user's module": (
        "open('own.py', 'w').write('v = [1]'); import own; own.v.append(2)",
        "d = list(own.v)",
        "d",
    ),
    "a cache": (
        "import functools\n@functools.lru_cache\ndef f(n): return [n]\nx = f(1)",
        "d = f(1) is x",
        "d",
    ),
    "an open file": ("h = open('h', 'w'); h.write('begun')", "d = h.tell()", "d"),
    "the traceback of an exception": (
        "try: 1 / 0\nexcept ZeroDivisionError as e: kept = e",
        "import traceback; d = len(traceback.format_exception(kept))",
        "d",
    ),
    "an address": ("a = [1]; t = {id(a): 'a'}", "d = t.get(id(a))", "d"),
    "an iterator over a table": (
        "t = {1: 1, 2: 2}; g = iter(t.items()); next(g)",
        "t[2] = 3; d = next(g)",
        "d",
    ),
    "what holds an array without telling": (
        "import numpy as np; t = np.arange(3); g = np.nditer(t); next(g)",
        "t[1] = 50; d = [int(each) for each in g]",
        "d",
    ),
    "a generator": ("g = iter(range(9)); next(g)", "d = next(g)", "d"),
    "a running generator": ("def g_():\n  yield from 'abc'\ng = g_(); next(g)", "d = next(g)", "d"),
    "an instance of a class": (
        "class C:\n  made = []\n  def __init__(self): C.made.append(self)\nx = C()",
        "y = C(); d = len(C.made), C.made[0] is x",
        "d",
    ),
    "the folder and environment": (
        "import os; os.mkdir('in'); os.chdir('in'); os.environ['K'] = 'v'; import sys; sys.path.append('q')",
        "d = os.path.basename(os.getcwd()), os.environ['K'], sys.path[-1]",
        "d",
    ),
    "the source of a function": ("import inspect\ndef f():\n  return 3", "d = inspect.getsource(f)", "d"),
    "a container of a library": (
        "from keyword import kwlist",
        "kwlist.append('zz'); import keyword; d = 'zz' in keyword.kwlist",
        "d",
    ),
    "an object of a library": (
        "from json import _default_decoder as j",
        "import json; d = j is json._default_decoder",
        "d",
    ),
    "a descriptor": ("import os; e = os.eventfd(3)", "d = os.eventfd_read(e)", "d"),
    "a submodule": (
        "import xml\nimport xml.dom.minidom as _; del _",
        "d = xml.dom.minidom.Node.__name__",
        "d",
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("what", LOST)
def test_what_it_does_not_hold_is_made_again(runtime: PythonRuntime, what: str) -> None:
    """Whether or not the patch begins with it: the result is that of a full run."""
    before, behind, look = LOST[what]
    cells = [before, "other = 1", behind, "end = other"]
    for number, cell in enumerate(cells, 1):
        assert runtime.execute(cell).success
        if number == 2:
            runtime.checkpoint()
    new = f"{behind}; again = 1"
    result = patched(runtime, 3, new, ApplyOptions(stop_on_failure=False))
    assert "applied" == result.status
    assert in_full(*cells[:2], new, cells[3], look=look) == runtime.execute(look).value


@pytest.mark.slow
def test_frames_are_what_they_were(tmp_path: Path) -> None:
    """Of pandas: attributes that pickling leaves in a frame are not part of its content."""
    pytest.importorskip("pandas")
    frame = "import pandas as pd; df = pd.DataFrame({'n': [1, 2], 's': list('ab')}); col = df['n']"
    with Counted(tmp_path).made() as runtime:
        run(runtime, frame, "t = df.n.sum()", stored=1)
        assert (2,) == patched(runtime, 2, "t = df.n.max()").steps_rerun
        assert "(2, [1, 2])" == runtime.execute("int(t), list(col)").value


SETTINGS = (
    "import decimal; decimal.getcontext().prec = 5",
    "import numpy as np; np.set_printoptions(precision=3); np.seterr(divide='ignore')",
    "import pandas as pd; pd.set_option('display.max_rows', 7)",
    "import matplotlib; matplotlib.rcParams['lines.linewidth'] = 7.0",
    "import logging; logging.getLogger('mine').setLevel(10)",
)


@pytest.mark.slow
def test_settings_of_libraries_are_what_they_were(tmp_path: Path) -> None:
    """After a sleep, and where a patch begins with a checkpoint."""
    for library in ("numpy", "pandas", "matplotlib"):
        pytest.importorskip(library)
    look = (
        "decimal.getcontext().prec, str(np.array([1 / 3])), pd.get_option('display.max_rows'), "
        "matplotlib.rcParams['lines.linewidth'], logging.getLogger('mine').level"
    )
    with Counted(tmp_path).made() as runtime:
        run(runtime, *SETTINGS, f"seen = {look}", "end = 1", stored=5)
        assert (6,) == patched(runtime, 6, f"seen = {look}, 'again'").steps_rerun
        wanted = "(5, '[0.333]', 7, 7.0, 10, 'again')"
        assert wanted == runtime.execute("seen").value
        runtime.hibernate()
        assert wanted == runtime.execute(f"{look}, 'again'").value
