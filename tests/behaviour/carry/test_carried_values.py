"""Names of a former state, carried into the live one."""

from __future__ import annotations

import pytest
from tests.support.carry.moves import carry, forget, load, ran, versions

from cenote.runtime import PythonRuntime
from cenote_worker.execution.trace import ABSENT, file, hidden, name

PROGRAMS = {
    "plain values": "x = {'a': [1, 2.5, None], (1, 2): {3}}",
    "cache of a function": "import functools\n@functools.lru_cache(maxsize=None)\ndef x(n, m=1):\n    return [n, m]\n"
    "y = x(1), x('a'), x(2, 3), x(1)",
    "cache with an order": "import functools\n@functools.lru_cache\ndef x(n): return [n]\n"
    "y = x(1), x(2), x(True), x(1)",
    "rows of a database": "import sqlite3\nc = sqlite3.connect(':memory:')\nc.row_factory = sqlite3.Row\n"
    'x = c.execute(\'select 1 as "a""b", 2 as a\').fetchall()\ndel c',
    "arrays of the standard library": "import array\nx = array.array('h', [1, -2]), array.array('d')\n"
    "y = x[0], array.array('u', 'ab'), iter([array.array('Q', range(9000))])",
    "sets of texts": "x = {f'{k:x}' for k in range(300)}\n"
    "y = {'same': x, 'less': {*list(x)[:40]}, 'removed': x - {'7'}}\ny['removed'].pop(); y['removed'].discard('8')",
    "sets in objects and sets": "class x:\n    def __init__(self, *held):\n"
    "        self.held, self.me = set(held), {self}\n"
    "y = [x(('a', 'b'), ('c', frozenset('d')), 1.5, None, *range(9), 2**61 - 1), x(*'the quick brown fox')]\n"
    "z = y[0].held",
    "shared list": "x = [1]\ny = {'same': x}",
    "cycle": "x = []\nx.append(x)",
    "array and a view": "import numpy as np\nx = np.arange(50_000.0)\ny = x[10:20]",
    "small and odd arrays": "import numpy as np\nx = [np.arange(6).reshape(2, 3), np.zeros((200, 50), order='F')]\n"
    "y = [x[0][0], np.array(['2020-01-01'], 'M8[D]'), np.array([1, 'a', None], object)]",
    "arrays of some kilobytes": "import numpy as np\nx = np.arange(1_000.0)\ny = np.zeros((9, 50), order='F')",
    "function": "def x(a, *, k=[1]):\n    'doc'\n    return a + len(k)",
    "closure": "def make():\n    n = [0]\n    def bump():\n        n[0] += 1\n        return n[0]\n"
    "    def look():\n        return n[0]\n    return bump, look\nx, y = make()",
    "class": "class x:\n    'doc'\n    limit = 3\n    def __init__(self, n):\n        self.n = n\n"
    "    @property\n    def twice(self):\n        return 2 * self.n\ny = [x(1), x(2)]",
    "slots": "class x:\n    __slots__ = ('a', 'b')\ny = x()\ny.a = 1",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass x:\n    a: int\n    b: list = "
    "dataclasses.field(default_factory=list)\ny = x(1)",
    "enum": "import enum\nclass x(enum.Enum):\n    ONE = 1\n    TWO = 2\ny = x.ONE",
    "subclass": "class x:\n    def say(self):\n        return 'x'\nclass y(x):\n    def say(self):\n"
    "        return super().say() + 'y'\nz = y()",
    "array of some kilobytes": "import numpy as np\nx = np.arange(300.0)\ny = np.arange(3000) % 7",
    "arrays of times and texts, read-only and empty": "import numpy as np\n"
    "x = [np.arange(5000).astype('M8[s]'), np.array(['ab'] * 3000), np.zeros((0, 3))]\n"
    "y = np.arange(400.0)\ny.flags.writeable = False",
    "masked array": "import numpy as np\nx = np.ma.masked_array([1, 2], [0, 1])\n"
    "y = np.ma.masked_array(np.array([1, None], object), [0, 1])",
    "frame": "import pandas as pd\nx = pd.DataFrame({'a': ['x', 'y', None], 'b': [1, 2, 3]})\n"
    "y = x.groupby('a').b.sum()",
    "frame of numbers by rows": "import pandas as pd, numpy as np\n"
    "x = pd.DataFrame(np.arange(4000.0).reshape(400, 10), columns=list('abcdefghij'))\ny = x['c']",
    "texts in pieces": "import pandas as pd\nx = pd.concat([pd.Series(['a', 'b']), pd.Series(['c'])])\n"
    "y = pd.DataFrame({'k': ['a', 'b']}).merge(pd.DataFrame({'k': ['b', 'c']}), how='outer')",
    "counts, which are in memory of Arrow": "import pandas as pd\nx = pd.Series(['a', 'b', 'a']).value_counts()",
    "levels": "import pandas as pd\nx = pd.DataFrame({'a': ['x'], 'b': [1]}).set_index(['a', 'b'], drop=False)",
    "data set of scikit-learn": "from sklearn.datasets import load_iris\nx = load_iris(as_frame=True)",
    "trees": "from sklearn.ensemble import RandomForestRegressor\n"
    "x = RandomForestRegressor(3, random_state=0).fit([[1], [2], [3]], [1, 2, 4])",
    "tree of neighbours": "from sklearn.neighbors import KNeighborsClassifier\n"
    "x = KNeighborsClassifier(1, algorithm='kd_tree').fit([[1.0], [2.0]], [0, 1])",
    "search": "from sklearn.model_selection import GridSearchCV\nfrom sklearn.linear_model import Ridge\n"
    "x = GridSearchCV(Ridge(), {'alpha': [1, 2]}, cv=2).fit([[1], [2], [3], [5]], [1, 2, 4, 5])",
    "class of an estimator": "from sklearn.base import BaseEstimator, TransformerMixin\n"
    "class x(TransformerMixin, BaseEstimator):\n    def fit(self, X, y=None):\n        return self\n"
    "    def transform(self, X):\n        return X\ny = x()",
    "named tuple": "import collections\nx = collections.namedtuple('x', 'a b')\ny = x(1, 2)",
}


@pytest.mark.sweep
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_is_carried_has_the_version_that_it_had(runtime: PythonRuntime, program: str) -> None:
    """So a later step that has read it need not run again."""
    trace = ran(runtime, program)
    group = {each for each in trace.writes if each.startswith("name:")}
    ran(runtime, "x = y = z = None")
    assert "" == carry(runtime, 1, *group)
    written = {each: trace.writes[each] for each in group}
    assert written == versions(runtime, *group)


def test_what_is_carried_can_be_used_and_goes_on_as_its_own(runtime: PythonRuntime) -> None:
    """Closures share their cells again, views their memory, instances their class; the copy is unchanged."""
    ran(runtime, PROGRAMS["closure"])
    ran(runtime, "import numpy as np\na = np.zeros(50_000)\nb = a[:5]")
    ran(runtime, "class C:\n    def __init__(self, n):\n        self.n = n\nmade = [C(1), C(2)]")
    ran(runtime, "del x, y, a, b, C, made")
    for _ in range(2):
        assert "" == carry(runtime, 3, *map(name, ("x", "y", "a", "b", "C", "made", "np")))
        ran(runtime, "x(); x()\nb[0] = 7\nassert y() == 2 and a[0] == 7")
        ran(runtime, "assert type(made[0]) is C and made[1].n == 2 and isinstance(C(5), C)")


def test_a_carried_function_looks_names_up_in_the_live_state(runtime: PythonRuntime) -> None:
    ran(runtime, "rate = 1\ndef f():\n    return rate")
    ran(runtime, "del f\nrate = 2")
    assert "" == carry(runtime, 1, name("f"))
    assert "2" == runtime.execute("f()").value


def test_names_come_in_the_order_that_they_had_there_and_what_was_not_there_goes(
    runtime: PythonRuntime,
) -> None:
    ran(runtime, "first = []\nsecond = [first]")
    ran(runtime, "del first\nfirst = 0\nthird = 3\nother = 4")
    assert "" == carry(runtime, 1, name("third"), name("second"), name("first"))
    told = "[n for n in globals() if n in ('first', 'second', 'third', 'other')]"
    assert "['other', 'first', 'second']" == runtime.execute(told).value
    assert ABSENT == versions(runtime, name("third"))[name("third")]


REFUSED = {
    "generator": ("x = (i for i in range(3))", "cannot pickle 'generator' object"),
    "open file": ("x = open('f', 'w')", "an open file cannot be stored"),
    "lock": ("import threading\nx = threading.Lock()", "cannot pickle '_thread.lock' object"),
    "its class stays": ("class C: pass\nx = C()", "it holds `C`, which does not come along"),
    "raises": ("class x:\n    def __reduce__(self):\n        1 / 0\nx = x()", "ZeroDivisionError"),
    "dies": ("import os\nclass x:\n    def __reduce__(self):\n        os._exit(1)\nx = x()", "no copy of"),
}


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_carried_is_refused_with_the_reason(
    runtime: PythonRuntime, program: str, reason: str
) -> None:
    """Then nothing changes, including the group's other names."""
    ran(runtime, f"y = 1\n{program}")
    ran(runtime, "y = 2\nx = 'live'")
    assert reason in carry(runtime, 1, name("x"), name("y"))
    assert "('live', 2)" == runtime.execute("x, y").value


def test_a_value_that_cannot_be_rebuilt_changes_nothing(runtime: PythonRuntime) -> None:
    code = "def make(): raise ValueError('no')\nclass C:\n    def __reduce__(self): return make, ()\nx = C()"
    ran(runtime, code)
    ran(runtime, "x = C = 'live'")
    assert "it cannot be rebuilt: ValueError: no" == carry(runtime, 1, *map(name, ("x", "C", "make")))
    assert "('live', 'live')" == runtime.execute("x, C").value


def test_a_step_that_is_not_kept_is_refused(runtime: PythonRuntime) -> None:
    ran(runtime, "x = 1")
    assert "no copy of the state after step 7 is kept" in carry(runtime, 7, name("x"))


def test_a_state_of_another_line_can_be_carried_from(runtime: PythonRuntime) -> None:
    """A patch rolls back, runs a step again, and takes unaffected values from the former line."""
    ran(runtime, "base = 1")
    ran(runtime, "kept = list(range(5))")
    runtime.rollback(1)
    ran(runtime, "base = 2")
    assert "" == carry(runtime, 2, name("kept"))
    assert "(2, [0, 1, 2, 3, 4])" == runtime.execute("base, kept").value


def test_names_and_files_are_forgotten(runtime: PythonRuntime) -> None:
    ran(runtime, "x = y = 1\nopen('gone', 'w').close()\nopen('stays', 'w').close()")
    forget(runtime, name("x"), name("never"), file("gone"), file("never"), hidden("random"))
    told = "import os\n('x' in globals(), y, os.path.exists('gone'), os.path.exists('stays'))"
    assert "(False, 1, False, True)" == runtime.execute(told).value


def test_modules_are_loaded_as_far_as_they_can_be(runtime: PythonRuntime) -> None:
    ran(runtime, "open('breaks.py', 'w').write('1 / 0')")
    load(runtime, "breaks", "no_such_module", "colorsys")
    assert "True" == runtime.execute("import sys\n'colorsys' in sys.modules").value
