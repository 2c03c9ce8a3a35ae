"""Steps that only seem to depend on a patch are not run again, and plans foresee that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as made:
        yield made


CASES = {
    "who looks at what a generator goes through that was read on": (
        (
            "d = [1, 2]\ng = (x for x in d)\na = next(g)",
            "k = 1",
            "n = len(d) + k",
            "b = next(g)\nlong = sum(range(2_000_000))",
            "c = b",
        ),
        (2, "k = 2"),
        (2, 3),
    ),
    "what else a table is read into": (
        (
            "import csv\nr = csv.reader(['a,b', 'c,d'])",
            "h = next(r)",
            "k = len(h)",
            "rest = list(r)\nlong = sum(range(2_000_000))",
        ),
        (3, "k = len(h) + 1"),
        (3,),
    ),
    "who loads what was pickled": (
        (
            "import pickle\nk = 1\ns = pickle.dumps({'a': [1]})",
            "x = pickle.loads(s)",
            "k = 1",
            "n = len(x)",
            "m = k",
        ),
        (3, "k = 2"),
        (3, 5),
    ),
    "who binds what a function has as a variable of its own": (
        ("def f(v):\n    n = v\n    return n", "r = f(2)", "class A: pass\nn = [A()]", "m = len(n)"),
        (1, "def f(v):\n    n = v + 1\n    return n"),
        (1, 2),
    ),
    "who logs behind somebody else": (
        (
            "import logging, sys\nlogging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)",
            "log = logging.getLogger('levels')",
            "log.info('one')",
            "log.warning('two')\nlog.debug('three')",
        ),
        (3, "log.info('another')"),
        (3,),
    ),
    "who asks for a column that is called as a function": (
        (
            "import sqlite3\ncon = sqlite3.connect(':memory:')\ncon.execute('create table t (uuid, age, sample)');",
            "con.execute('insert into t (uuid, age, sample) values (1, 2, 3)');",
            "k = 1",
            "m = k + 1",
            "r = con.execute('select age, sample from t order by uuid').fetchall()",
        ),
        (3, "k = 2"),
        (3, 4),
    ),
    "who asks a database of DuckDB": (
        (
            "import duckdb\ncon = duckdb.connect()",
            "con.execute('create table t as select range as a from range(9)');",
            "r = con.execute('select sum(a) from t').fetchall()",
            "k = 1",
            "s = con.execute('select max(a) from t').fetchall()[0][0] + k",
            "u = con.table('t').filter('a > 3').order('a desc').fetchall()",
            "v = con.execute('select min(a) from t').fetchall()",
        ),
        (3, "r = con.table('t').filter('a > 4').fetchall()"),
        (3,),
    ),
    "who looks at a list that somebody else is given later": (
        ("d = [[1]]", "k = 1", "n = len(d) + k", "e = d[0]\ng = iter(d)", "e.append(2)\nm = next(g)"),
        (2, "k = 2"),
        None,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_no_more_is_run_than_depends_on_the_patch(runtime: PythonRuntime, case: str) -> None:
    """The list has changed since in the last case: its step runs with the former list."""
    cells, (step, code), rerun = CASES[case]
    runtime.reset()
    for cell in cells:
        assert runtime.execute(cell).success
    state = runtime.state
    first = state.steps[0].number
    plan = state.plan(Patch.replace_step(first + step - 1, code))
    result = state.apply(plan)
    again = tuple(number - first + 1 for number in result.steps_rerun)
    if rerun is None:
        assert {2, 3} <= set(again)
        assert "(3, [[1, 2]], True)" == runtime.execute("n, d, e is d[0] is m").value
    else:
        assert (rerun, rerun) == (again, tuple(one.number - first + 1 for one in plan.rerun))
