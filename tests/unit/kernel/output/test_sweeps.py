"""Which arrays a cell will rewrite, by its syntax."""

from __future__ import annotations

import ast
from types import FunctionType

import numpy as np
import pandas as pd
import pytest

from cenote_worker.jail.cells.source import CellCompiler
from cenote_worker.jail.snapshots.cost_forecast import LARGE, sweep_of
from cenote_worker.jail.snapshots.sweep_syntax import Sorted, SweptPart, may_sweep, sweeps

SWEEPING = {
    "a += 1": ("a",),
    "import numpy as np\na *= 2; b = a.sum": ("a",),
    "a[:] = a * 2": ("a",),
    "a[...] -= b": ("a",),
    "a[:, :] = 0": ("a",),
    "a += 1\nb[:] = 0\na -= 1\nb.sum()": ("a", "b"),
    "c = a[:] = 0": ("a",),
    "n += 1": ("n",),
    "print(len(a)); a *= np.float32(2)": ("a",),
    "np.add(a, 1, out=a)": ("a",),
    "numpy.sqrt(a, out=a[:])": ("a",),
    "a[:] = np.where(a > 0, np.exp(b), 0)": ("a",),
    "np.add(b, 1, a); np.copyto(b, 0)": ("a", "b"),
    "b += 1; a.fill(0.5); c += 1": ("b", "a"),
    "for i in range(3):\n    a += i\nb += 1": ("a",),
    "a -= a.mean(axis=0); a /= a.std()": ("a",),
    "a.clip(0, 1, out=a)": ("a",),
    "a.byteswap(True); b += 1": ("a",),
    "a.sort(kind='stable')": (Sorted(array="a"),),
    "b += 1; a.partition(10)": ("b", Sorted(array="a")),
    "np.einsum('ij, ij -> ij', a, b, out=c); a += 1": ("c", "a"),
    "v = a[:]\nv *= 2": ("a",),
    "v = a.T; w = v; v -= 1": ("a",),
}

PARTS = {
    "a[0] += 1": ("a", "0", set()),
    "a[:n] = 0": ("a", ":n", {"n"}),
    "a[:, 0] = b": ("a", "(:, 0)", set()),
    "a[mask] *= 2": ("a", "mask", {"mask"}),
    "np.add(a, 1, out=a[1:])": ("a", "1:", set()),
    "np.putmask(a, mask, 0)": ("a", "mask", {"mask"}),
    "np.put(a, places, b)": ("a", "places", {"places"}),
    "v = a[::-1]\nv *= 2": ("a", "::-1", set()),
    "df.loc[:] = 0": ("df", ":", set()),
    "df.loc[df['x'] > 0, 'y'] = 0": ("df", "(df['x'] > 0, 'y')", {"df"}),
    "df.iloc[:, 0] *= 2": ("df", "(:, 0)", set()),
    "for i in range(3):\n    a[i] = 0": ("a", "(0,)", set()),
    "for i in range(len(a)):\n    a[i, n:] = 0": ("a", "(0, n:)", {"n"}),
    "for i in range(a.shape[0]):\n    a[i] *= i": ("a", "(0,)", set()),
}

NOT_SWEEPING = (
    "",
    "a = a + 1",
    "a.b += 1",
    "a += f()",
    "a += np.random.random(9)",
    "a += np.linalg.inv(b)",
    "a += np.sort(b)",
    "b = np.add(a, 1)",
    "a = b * 2; a += 1",
    "for i in range(3):\n    a[:, i] = 0",
    "for i in range(n):\n    a[i] = 0",
    "v = a[::-1]; v = v + 1; v += 1",
    "a = f; v = a[:]; v += 1",
    "v = a[f()]; v += 1",
    "np.einsum('ij, jk -> ik', a, b, out=c)",
    "np.einsum(s, a, b, out=c)",
    "df.loc[f(b)] = 0",
    "df.b[:] = 0",
    "mask = b > 0; a[mask] = 0",
    "a[f(b)] = 0",
    "b.std(f(c)); a += 1",
    "model.fit(b); a += 1",
    "f(b)(c); a += 1",
    "a[:] = [g(each) for each in b]",
    "b = c @ c; a += 1",
    "for i in range(0):\n    a += 1",
    "for i in range(n):\n    a += 1",
    "for i in range(3):\n    f.g()\n    a += 1",
    "a = b + 1; a.fill(0)",
    "a.fill(f())",
    "f(*b)",
    "f(g.h())",
    "def f(a):\n    a += 1",
    "if n:\n    a += 1",
    "await b\na += 1",
)


@pytest.mark.parametrize("code", SWEEPING)
def test_whole_arrays_by_plain_statements(code: str) -> None:
    """In order, each once. Whether a name is an array is checked in the namespace."""
    body = ast.parse(code).body
    assert (SWEEPING[code], True) == (sweeps(body), may_sweep(body))


@pytest.mark.parametrize("code", PARTS)
def test_parts_of_arrays(code: str) -> None:
    """The size of a part depends on the array and the names in the index."""
    (part,) = sweeps(ast.parse(code).body)
    assert isinstance(part, SweptPart)
    assert PARTS[code] == (part.array, ast.unparse(part.index), set(part.names))


@pytest.mark.parametrize("code", NOT_SWEEPING)
def test_what_may_take_its_time(code: str) -> None:
    """A copy is worth keeping if little of an array changes, or the cell runs for long anyway."""
    assert () == sweeps(ast.parse(code).body)


BIG = np.zeros(LARGE + 4096, dtype=np.int8)

TABLE = pd.DataFrame(np.zeros((LARGE // 8, 4)), columns=list("wxyz"))
TABLE.loc[::100, "w"] = 1.0
TABLE.loc[:100, "x"] = 1.0

ARRAYS = {
    "df": TABLE,
    "s": TABLE["x"],
    "often": TABLE["w"] > 0,
    "rarely": TABLE["x"] > 0,
    "rows": np.zeros((LARGE // 2**14 + 1, 2**14), dtype=np.int8),
    "a": BIG,
    "small": BIG[:1000],
    "mask": BIG > -1,
    "few": BIG != 0,
    "places": np.random.default_rng(0).permutation(LARGE // 100) * 100,
}

MUCH = (
    "a += 1",
    "def f(x, y=1):\n    'doc'\n    n = y\n    x *= n\n    return x\nb = f(a)",
    "def f(*, x):\n    x[:] = 1\nf(x=a)",
    "def f():\n    a[:] = 0\nf()",
    "def f():\n    global a\n    a += 1\nf()",
    "def g(z, n):\n    z.fill(n)\ndef f(x):\n    g(n=1, z=x)\nf(a)",
    "def f(x):\n    def g(y):\n        y += 1\n    g(x)\nf(a)",
    "known(a)",
    "def f(x):\n    known(x)\nf(a)",
    "a.sort()",
    "a[n:] = 0",
    "a[mask] = 0",
    "np.put(a, places, 0)",
    "def f(x, at, n):\n    x[at] = n\nf(a, places, 1)",
    "def f(x):\n    x.sort()\nf(a)",
    "v = a[::-1]\nv += 1",
    "def f(x):\n    v = x[1:]\n    v += 1\nf(a)",
    "for i in range(len(rows)):\n    rows[i] = i",
    "df.loc[:] = 0",
    "df.iloc[:, 0] *= 2",
    "df.loc[:, 'y'] *= 2",
    "df.loc[df['w'] > 0, 'y'] = 0.0",
    "df.loc[often] = 0.0",
    "s.loc[:] = 0.0",
    "def f(x, n):\n    x.loc[:, 'y'] = n\nf(df, 1.0)",
)

LITTLE = (
    "a[:1000] = 0",
    "a[few] = 0",
    "a[t] = 0",
    "a[missing] = 0",
    "a[::0] = 0",
    "def f(x):\n    at = few\n    x[at] = 0\nf(a)",
    "t.sort()",
    "for i in range(len(a)):\n    a[i] = i",
    "for i in range(9):\n    rows[i] = i",
    "df.loc[3] = 0",
    "df.loc[df['x'] > 0, 'y'] = 0.0",
    "df.loc[df['x'] > t, 'y'] = 0.0",
    "df.loc[df['missing'] > 0, 'y'] = 0.0",
    "df.loc[rarely, 'y'] = 0.0",
    "df.loc[:, 'missing'] = 0",
    "t.loc[:] = 0",
    "small += 1; n += 1; missing += 1; t += [2]",
    "def f(x):\n    x = x + 1\n    x += 1\nf(a)",
    "def f(x):\n    x[0] = 1\nf(a)",
    "def f(x):\n    x.tolist()\n    x += 1\nf(a)",
    "def f(x):\n    if len(x):\n        x += 1\nf(a)",
    "def f(x):\n    return x\n    x += 1\nf(a)",
    "def f(x):\n    x += 1\n    yield x\nf(a)",
    "def f(x, a):\n    a += 1\nf(a, small)",
    "def f(x):\n    x += 1\nf(a[1:])",
    "def f(x):\n    x += 1\na = a * 2\nf(a)",
    "def f():\n    a = 1\n    a += 1\nf()",
    "def f(x):\n    f(x)\nf(a)",
    "@known\ndef f(x):\n    x += 1\nf(a)",
    "len.known(a); a += 1",
    "unknown(a); a += 1",
    "n(a)",
)


def much(code: str) -> bool:
    """Whether a cell counts as sweeping that much, if `known` was defined by the previous cell, and `a` is large."""
    compiler = CellCompiler(8)
    namespace: dict[str, object] = {**ARRAYS, "n": 1, "t": [1]}
    body = compiler.compile("1\ndef known(x):\n    x += 1\n", 1).body
    assert body is not None
    namespace["known"] = FunctionType(body.co_consts[0], namespace)
    return sweep_of(compiler.compile(code, 2).statements, namespace, compiler.definition) is not None


@pytest.mark.parametrize("code", MUCH)
def test_functions_of_the_users_are_followed(code: str) -> None:
    """By their parameters and the namespace's names, including functions that call others."""
    assert much(code)


@pytest.mark.parametrize("code", LITTLE)
def test_what_is_no_sweep_of_a_large_array(code: str) -> None:
    """Numbers and lists, parts and new memory, code that may not run, and code after a slow part."""
    assert not much(code)


@pytest.mark.parametrize("value", [" + ".join(["1"] * 2000), f"[{'1, ' * 2000}]"], ids=["deep", "wide"])
def test_trees_of_any_size(value: str) -> None:
    """A generated expression may be a sum of thousands of terms: it is not examined to its end."""
    assert () == sweeps(ast.parse(f"a += {value}").body)
