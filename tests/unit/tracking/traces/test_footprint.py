"""Which steps have certainly only bound names."""

from __future__ import annotations

import importlib

import pytest
from tests.support.tracking.steps import Steps

SETUP = """
import datetime, decimal, functools, gc, itertools, math, os, pathlib, random, sys, warnings
from pathlib import Path
import numpy as np
import pandas as pd
a = np.arange(3.0)
d = {"k": 1}
set_size = np.setbufsize
df = pd.DataFrame({"a": [1.0, 2.0]})
g = (n for n in range(9))
log = []
rng = np.random.default_rng(1)
@functools.lru_cache
def kept(n): return n
def double(n): return 2 * n
def noted(n): log.append(n)
def importing(): import json
drawn, setting = np.random.seed, np.set_printoptions
os.symlink('/dev/null', 'link')
with open('given', 'w') as being_read: being_read.write('some text')
being_read = open('given')
class C:
    v = 1
    def get(self): return self.v
    def put(self): self.v += 1
c = C()
"""

pytestmark = pytest.mark.usefixtures("alone")

HARMLESS = [
    "x = 1",
    "x = d['k'] + 1",
    "print(d, len(d), sorted(d))",
    "df",
    "print(df.head(), df['a'].mean(), df.shape)",
    "x = double(2)",
    "print(math.sqrt(2), a.mean(), a[1:])",
    "for i in range(3):\n    print(f'{i:>3}')",
    "if 'k' in d:\n    y = str(d['k'])",
    "print(type(df), datetime.date(2026, 1, 1))",
    "print(open)",
    "x = open('given').read()",
    "with open('given') as f:\n    x = f.read()",
    "x = open('/proc/self/stat').read()",
    "x = Path('given').read_text()",
]

FILES = [
    "open('f', 'w').close()",
    "x = open('f', 'x').write('text')",
    "with open('f', 'ab') as f:\n    f.write(b'bytes')",
    "with open('given', 'r+') as f:\n    x = f.read()\n    f.write(x)",
    "df.to_csv('f')",
    "Path('f').write_text('text')",
    "with Path('f').open('w') as f:\n    f.write('text')",
    "Path('given').rename('f')",
    "Path('f').mkdir()",
]

COMPUTED = [
    "import json",
    "import numpy as np, pandas as pd",
    "from collections import Counter",
    "from math import sqrt",
    "x = np.linspace(0, 1, 5)",
    "x = np.sqrt(a) + np.float64(1) * np.pi",
    "x = np.linalg.norm(a)",
    "x = [np.mean][0](a)",
    "x = double(np.max(a))",
    "x = pd.DataFrame({'a': [1, 2]})",
    "x = pd.concat([df, df]).describe()",
    "x = df.groupby('a').mean()",
]

MORE = [
    "importing()",
    "import decimal",
    "import random",
    "from random import random",
    "from numpy import random",
    "from json import *",
    "np.random.default_rng(1)",
    "[np.set_printoptions][0](precision=3)",
    "np.set_printoptions(precision=3)",
    "np.save('f', a)",
    "np.lib",
    "np.testing",
    "np.frompyfunc(double, 1, 1)",
    "pd.set_option('display.max_rows', 60)",
    "pd.options",
    "drawn(3)",
    "setting(precision=3)",
    "c.v = 2",
    "c.get()",
    "open('../f', 'w').close()",
    "open('link', 'w').close()",
    "open('/proc/self/comm', 'w').close()",
    "open(0, closefd=False)",
    "open('f', 'w', opener=lambda path, flags: os.open(path, flags))",
    "being_read.readline()",
    "os.remove('given')",
    "pathlib.os.getcwd()",
    "Path('../f').write_text('text')",
    "Path('link').write_text('text')",
    "Path('link').unlink()",
    "Path('link').rename('f')",
    "Path('f').symlink_to('/dev/null')",
    "random.random()",
    "np.random.rand()",
    "kept(1)",
    "eval('1')",
    "id(d)",
    "getattr(d, 'clear')()",
    "print(d.__class__)",
    "print(df._mgr)",
    "np.seterr()",
    "np.seterrcall(None)",
    "[set_size][0](8192)",
    "pd.get_option('display.max_rows')",
    "x = decimal.Decimal(1) / 3",
    "warnings.simplefilter('ignore')",
    "os.getcwd()",
    "gc.isenabled()",
    "sys.getrecursionlimit()",
    "1 / 0",
    "undefined",
    "x = datetime.datetime.now().microsecond",
]

BOUND = [
    "rng.normal()",
    "next(g)",
    "d['k'] = 2",
    "noted(1)",
    "df['b'] = 1",
    "df.loc[0, 'a'] = 9",
    "log += [1]",
]


@pytest.fixture
def ready(steps: Steps) -> Steps:
    steps.good(SETUP)
    return steps


@pytest.mark.sweep
@pytest.mark.parametrize("code", HARMLESS)
def test_what_only_binds_computes_and_prints(ready: Steps, code: str) -> None:
    trace = ready.good(code)
    assert {key.partition(":")[2] for key in trace.writes} == ready.bound_only


@pytest.mark.sweep
@pytest.mark.parametrize("code", COMPUTED)
def test_what_computes_with_libraries_that_are_known(ready: Steps, code: str) -> None:
    """With functions known to have no side effects. A repeated import only binds a name."""
    test_what_only_binds_computes_and_prints(ready, code)


def test_an_import_by_something_of_the_user(ready: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.__import__", lambda *given: importlib.__import__(*given))
    ready.run("import json")
    assert ready.bound_only is None


@pytest.mark.sweep
@pytest.mark.parametrize("code", FILES)
def test_what_writes_files_of_the_directory_besides(ready: Steps, code: str) -> None:
    """Files are stored separately."""
    trace = ready.good(code)
    assert any(key[:5] == "file:" for key in trace.writes)
    assert {key.partition(":")[2] for key in trace.writes if key[:5] == "name:"} == ready.bound_only


def test_a_file_system_in_memory_is_known_whole(ready: Steps) -> None:
    """After its import every step may use it: that alone is no side effect."""
    ready.good("import fsspec.implementations.memory")
    ready.good("x = 1")
    assert {"x"} == ready.bound_only


@pytest.mark.sweep
@pytest.mark.parametrize("code", MORE)
def test_what_may_leave_something_behind(ready: Steps, code: str) -> None:
    """Directly, by calls, or as far as is known: a library's functions can set state that is not tracked."""
    ready.run(code)
    assert ready.bound_only is None


def test_frames_that_share_an_index_may_be_other_ones_though_equal(
    ready: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of pandas 2, where two frames share an index: an equal one in its place is not noticed."""
    ready.good("s = df['a'] * 2")
    for version, code, bound in (
        ("2.3.3", "df.reset_index(inplace=True, drop=True)", None),
        ("2.3.3", "x = df['a'].sum()", None),
        ("2.3.3", "x = a.sum()", {"x"}),
        ("3.0.0", "x = df['a'].sum()", {"x"}),
    ):
        monkeypatch.setattr("pandas.__version__", version)
        ready.good(code)
        assert bound == ready.bound_only


@pytest.mark.parametrize("code", BOUND)
def test_what_writes_into_an_object_says_whose(ready: Steps, code: str) -> None:
    """It is no binding, and a look at the namespace shows that."""
    before = {key: id(value) for key, value in ready.namespace.items()}
    ready.good(code)
    assert ready.bound_only is None or any(
        before.get(name) == id(ready.namespace[name]) for name in ready.bound_only
    )


def test_a_builtin_that_a_user_has_replaced(ready: Steps) -> None:
    """A replaced name is looked up like any other."""
    ready.good("def id(x): return log.append(x)")
    ready.good("id(1)")
    assert ready.bound_only is not None
    assert "log" in ready.bound_only
