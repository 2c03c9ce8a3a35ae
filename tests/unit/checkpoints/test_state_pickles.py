"""A namespace is restored unchanged: in another namespace, with all shared objects."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.jail.state.pickles_unsafe import Landing, load
from cenote_worker.jail.state.variable_groups import grouped


def ran(code: str) -> dict[str, Any]:
    """The namespace after some code."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "<cell 1>", "exec", dont_inherit=True), namespace)
    return namespace


def names_of(namespace: dict[str, Any]) -> list[str]:
    return [name for name in namespace if not name.startswith("__")]


def refilled(namespace: dict[str, Any]) -> dict[str, Any]:
    """Another namespace, filled group by group."""
    fresh: dict[str, Any] = {"__name__": "__main__"}

    def no_anchor(kind: str, name: str) -> object:
        raise KeyError(kind, name)

    landing = Landing(fresh, no_anchor)
    made: dict[str, Any] = {}
    for group in grouped(names_of(namespace), namespace, {}).groups:
        made.update(load([memoryview(bytearray(part)) for part in group.parts], landing))
        fresh.update(made)
    for name in made:
        del fresh[name]
    fresh.update((name, made[name]) for name in names_of(namespace) if name in made)
    return fresh


def groups_of(namespace: dict[str, Any]) -> set[frozenset[str]]:
    return {frozenset(group.names) for group in grouped(names_of(namespace), namespace, {}).groups}


FAITHFUL = {
    "a function sees names that are bound later": ("k = 1\ndef f(): return k", "k = 5", "f()", 5),
    "a function that calls itself": ("def f(n): return 1 if n < 2 else n * f(n - 1)", "", "f(5)", 120),
    "defaults and keyword defaults": ("def f(a, b=[1], *, c={2}): return a, b, c", "", "f(0)", (0, [1], {2})),
    "files that were closed": (
        "with open('/dev/null', 'a') as f, open('/dev/null', 'rb+') as b, open('/dev/null', 'rb', 0) as r: pass",
        "",
        "[(each.name, each.mode, each.closed, type(each).__name__) for each in (f, b, r)]",
        [
            ("/dev/null", "a", True, "TextIOWrapper"),
            ("/dev/null", "rb+", True, "BufferedRandom"),
            ("/dev/null", "rb", True, "FileIO"),
        ],
    ),
    "views of ordered dictionaries, and read-only ones": (
        "from collections import OrderedDict; from types import MappingProxyType\n"
        "d = OrderedDict(a=1); k, p = d.keys(), MappingProxyType(d)",
        "d['b'] = 2",
        "(list(k), dict(p))",
        (["a", "b"], {"a": 1, "b": 2}),
    ),
    "what exceptions came from, and are about": (
        "e = ValueError(1); e.__cause__ = KeyError(2); e.__context__ = TypeError(); f = NameError('f', name='x')\n"
        "g = ExceptionGroup('g', [e, f])",
        "",
        "(repr(e.__cause__), repr(e.__context__), e.__suppress_context__, f.name, g.exceptions[0] is e)",
        ("KeyError(2)", "TypeError()", True, "x", True),
    ),
    "attributes of functions": ("def f(): pass\nf.tag = 'x'", "", "f.tag", "x"),
    "annotations and text of functions": (
        "def f(a: int) -> str:\n  'What it does.'",
        "",
        "(f.__annotations__, f.__doc__)",
        ({"a": int, "return": str}, "What it does."),
    ),
    "closures share their cells": (
        "def make():\n  n = 0\n  def inc():\n    nonlocal n; n += 1\n  return inc, lambda: n\ninc, get = make()",
        "inc()",
        "get()",
        1,
    ),
    "a closure over itself": (
        "def make():\n  def f(n): return n and f(n - 1)\n  return f\nf = make()\ndel make",
        "",
        "f(3)",
        0,
    ),
    "a cell that is not filled yet": (
        "def make():\n  def f(): return later\n  return f\n  later = 1\nf = make()",
        "",
        "len(f.__closure__)",
        1,
    ),
    "two names for one object": ("a = [1]\nb = a", "a.append(2)", "(b, a is b)", ([1, 2], True)),
    "an object inside another": ("a = [1]\nb = {'a': a}", "a.append(2)", "b", {"a": [1, 2]}),
    "a ring": ("a = []\na.append(a)", "", "a[0] is a", True),
    "instances and their class": (
        "class P:\n  def __init__(self): self.x = k\nk = 1\np = P()\nq = [P()]",
        "k = 2\nP.y = 3",
        "(type(p) is P, type(q[0]) is P, P().x, p.y)",
        (True, True, 2, 3),
    ),
    "super in methods": (
        "class A:\n  def f(self): return 1\nclass B(A):\n  def f(self): return super().f() + 1\nb = B()",
        "",
        "b.f()",
        2,
    ),
    "the order of attributes": (
        "class P:\n  b = 1\n  def a(self): pass\nimport copy; copy.copy(P())",
        "",
        "[each for each in vars(P) if each[0] != '_' or 'slot' in each]",
        ["b", "a"],
    ),
    "class attributes": ("class P:\n  made = []\np = P()", "P.made.append(1)", "p.made", [1]),
    "a view shares memory": ("a = np.arange(5.)\nb = a[1:3]", "b[:] = -1", "a.tolist()", [0, -1, -1, 3, 4]),
    "a view of a view, backwards": (
        "a = np.arange(6)\nb = a[::2][::-1]",
        "a[4] = 9",
        "b.tolist()",
        [9, 2, 0],
    ),
    "a reshaped view": (
        "a = np.arange(6)\nb = a.reshape(2, 3).T",
        "b[0, 1] = 9",
        "a.tolist()",
        [0, 1, 2, 9, 4, 5],
    ),
    "a view as other bytes": (
        "a = np.zeros(1)\nb = a.view(np.uint8)",
        "b[:] = 255",
        "bool(np.isnan(a[0]))",
        True,
    ),
    "a view of objects": (
        "a = np.array([[], 1, 2], object)\nb = a[1:]",
        "b[0] = 9",
        "a.tolist()",
        [[], 9, 2],
    ),
    "memory of a bytearray": ("a = bytearray(4)\nb = np.frombuffer(a, np.uint8)", "b[1] = 7", "a[1]", 7),
    "an order of axes": (
        "a = np.zeros((2, 3, 4)).transpose(1, 0, 2).copy('K')\nb = a[1]",
        "b[:] = 1",
        "(a.strides, float(a.sum()))",
        ((32, 96, 8), 8.0),
    ),
    "a frozen view": (
        "a = np.arange(3)\nb = a[:]\nb.flags.writeable = False",
        "",
        "b.flags.writeable",
        False,
    ),
    "a file that was closed": (
        "with open('/dev/null', 'rb') as f: pass\nwith open('/dev/null', 'a') as g: pass",
        "",
        "(f.closed, f.name, f.mode, type(f).__name__, g.name, g.mode)",
        (True, "/dev/null", "rb", "BufferedReader", "/dev/null", "a"),
    ),
    "a match": (
        "import re\nm = re.search(r'(b)(c)?', 'xbx')",
        "",
        "(m.span(), m.groups(), m.string)",
        ((1, 2), ("b", None), "xbx"),
    ),
    "views of a dictionary": (
        "d = {1: 2}\nk = d.keys(); v = d.values()",
        "d[3] = 4",
        "(list(k), list(v))",
        ([1, 3], [2, 4]),
    ),
    "a named tuple": (
        "from typing import NamedTuple\n"
        "class P(NamedTuple):\n  a: int\n  b: str = 'x'\n  def twice(self): return 2 * self.a\n"
        "p = P(2)",
        "",
        "(p, p.twice(), type(p) is P, P._field_defaults, P.__slots__, P.__orig_bases__ == (NamedTuple,))",
        ((2, "x"), 4, True, {"b": "x"}, (), True),
    ),
    "a generic class with slots": (
        "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass Q(Generic[T]):\n  __slots__ = ('b',)\nq = Q()",
        "q.b = 3",
        "(q.b, Q.__parameters__ == (T,), Q.__slots__, hasattr(q, '__dict__'))",
        (3, True, ("b",), False),
    ),
    "type parameters of other kinds": (
        "from typing import Callable, ParamSpec, TypeVarTuple\n"
        "P = ParamSpec('P')\nTs = TypeVarTuple('Ts')\nd = [P, Ts, Callable[P, int]]",
        "",
        "(d[0] is P, d[1] is Ts, d[2].__parameters__ == (P,), P.__name__, Ts.__module__)",
        (True, True, True, "P", "__main__"),
    ),
    "large memory, out of band": ("a = np.arange(9999)\nb = a[9998:]", "a[9998] = 1", "b.tolist()", [1]),
}


@pytest.mark.parametrize("case", FAITHFUL)
def test_it_comes_back_as_it_was(case: str) -> None:
    """And continues to behave so: the second code runs in the filled namespace."""
    before, after, question, answer = FAITHFUL[case]
    namespace = refilled(ran(f"import numpy as np\n{before}"))
    exec(after, namespace)
    assert answer == eval(question, namespace)


APART = {
    "equal numbers and strings": ("a = ['some text', 12345]\nb = ['some text', 12345]", {"a"}, {"b"}),
    "arrays of one type": ("a = np.arange(3.)\nb = np.arange(3.)", {"a"}, {"b"}),
    "values of one library class": ("a = [np.float64]\nb = [np.float64]", {"a"}, {"b"}),
    "a function and what it reads": ("b = [1]\ndef a(): return b", {"a"}, {"b"}),
}


@pytest.mark.parametrize("case", APART)
def test_what_shares_no_state_is_stored_apart(case: str) -> None:
    """So that a change of one writes no data of the other."""
    code, *groups = APART[case]
    assert {frozenset(group) for group in groups} <= groups_of(ran(f"import numpy as np\n{code}"))


REFUSED = {
    "a = (i for i in ())": "generator",
    "a = open('/dev/null')": "an open file",
    "import threading; a = threading.Lock()": "lock",
    "a = globals()": "the namespace itself",
    "a = [globals()]": "the namespace itself",
    "a = memoryview(b'x')": "memoryview",
    "a = iter({1: 2}.items())": "an iterator over a table",
    "a = vars(type('C', (), {}))": "the table of a class",
    "import mmap, numpy; a = numpy.frombuffer(mmap.mmap(-1, 8), 'u1')[1:]": "an array that lies in a file",
    "import re; a = list(re.finditer('a', 'aaa'))[1]": "re.Match",
    "import functools\n@functools.lru_cache(1)\ndef a(n): return n\na(1), a(2)": "cache",
    "class A:\n  def __reduce__(self): raise SystemError('no')\na = A()": "SystemError: no",
    "class A:\n  def __reduce__(self): return 'b'\na = A()": "pickle",
    "a = []\nfor _ in range(99999): a = [a]": "excessively deep",
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_cannot_be_stored_is_named_with_the_reason(code: str) -> None:
    """And does not prevent others from being stored."""
    namespace = ran(f"{code}\nb = [1]")
    done = grouped(["a", "b"], namespace, {})
    assert [("b",)] == [group.names for group in done.groups]
    assert {"a"} == done.refused.keys()
    assert REFUSED[code] in done.refused["a"].lower() or REFUSED[code] in done.refused["a"]
    namespace.clear()


def test_an_equal_state_has_equal_bytes() -> None:
    """Classes too, which cloudpickle numbers at random: unchanged values are not written again."""
    code = "class P:\n  x = 1\np = P()\ndef f(a=[]): return p\nc = [f]"
    namespace = ran(code)
    streams = [[bytes(g.parts[0]) for g in grouped(names_of(namespace), namespace, {}).groups] for _ in "12"]
    assert streams[0] == streams[1]


@given(st.data())
def test_any_view_shares_memory_with_what_it_views(data: st.DataObject) -> None:
    """For any basic slicing and transposition: a write to either shows in the other."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    base = (
        np.arange(int(np.prod(shape)), dtype=data.draw(st.sampled_from(["f8", "i2", "u1", "O"])))
        .reshape(shape)
        .copy()
    )
    cuts = [
        slice(
            *data.draw(st.tuples(st.none() | st.integers(0, 2), st.none() | st.integers(1, 4))),
            data.draw(st.sampled_from([1, 2, -1])),
        )
        for _ in shape
    ]
    view = base[tuple(cuts)].transpose(data.draw(st.permutations(range(len(shape)))))
    filled = refilled({"a": base, "b": view})
    a, b = filled["a"], filled["b"]
    assert view.tolist() == b.tolist()
    assert (view.strides, view.dtype) == (b.strides, b.dtype)
    b[...] = 0
    view[...] = 0
    assert base.tolist() == a.tolist()


def test_nothing_is_loaded_outside_a_jail() -> None:
    """The trusted side of checkpoints imports neither pickle nor modules that load it."""
    outside = [name for name in sys.modules if name.startswith("cenote_worker.checkpoints.")]
    for name in outside:
        assert not {"pickle", "cloudpickle"} & vars(sys.modules[name]).keys()
