"""Which namespace states are stored as bindings instead of a copy of the process, and which are not."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cenote_worker.execution.trace import name
from cenote_worker.jail.snapshots.deltas.bindings import MOST_NAMES, BindingsBaseline, bring_about, difference
from cenote_worker.jail.snapshots.protocol import MAX_BINDINGS
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.process.memory_unsafe import IS_READABLE

Namespace = dict[str, object]

FRAME = (
    "import numpy as np, pandas as pd\n"
    "df = pd.DataFrame({'k': list('abab'), 'v': [1.0, 2, 3, 4], 'n': range(4)})\n"
    "df.groupby('k').mean()"
)


def ran(code: str) -> Namespace:
    namespace: Namespace = {}
    exec(code, namespace)
    return namespace


def told(before: str, code: str) -> bytes | None:
    """State after a cell that wrote all of the names, and nothing else."""
    namespace = ran(before)
    base = BindingsBaseline.of(namespace)
    assert base is not None
    written = set(namespace)
    exec(code, namespace)
    return difference(
        base, namespace, {name for name in written ^ namespace.keys() if name != "__builtins__"}
    )


def told_all(before: str, code: str) -> bytes | None:
    """The same after a cell that may have written to anything that existed."""
    namespace = ran(before)
    base = BindingsBaseline.of(namespace)
    assert base is not None
    exec(code, namespace)
    return difference(base, namespace, namespace.keys() - {"__builtins__"})


scalars = (
    st.none()
    | st.booleans()
    | st.just(...)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.complex_numbers(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain.filter(lambda value: value != ()).map("x = {!r}".format))
@example("x = -0.0")
@example("x = b''")
@example("x = b'a'")
@example("x = b'\\0' * 9")
@example("x = {'b': [1, (2, b'3')], 'a': {}, 1.5: ({},)}")
@example("x = (1000, [10**9])")
@example("t = (1, 2); x = [(3, 4), (3, 4)]; del t")
def test_a_small_plain_value_is_told(code: str) -> None:
    """Its type and its sign, too. The empty tuple, of which a process has only one, takes a copy."""
    bindings, copy = told("", code), ran("")
    assert bindings is not None
    assert (["x"], {}) == bring_about(copy, bindings)
    assert repr(ran(code)["x"]) == repr(copy["x"])
    assert type(ran(code)["x"]) is type(copy["x"])


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("", "x = {object()}"),
        ("", "x = {float('nan')}"),
        ("", "x = {(1, 2)}"),
        ("", "x = [{1}]"),
        ("", "x = set(range(501))"),
        ("", "x = {1}; f = iter(x)"),
        ("", "import weakref; x = {1}; r = weakref.ref(x)"),
        ("class S(set): pass", "x = S()"),
        ("", "x = [frozenset((1, 2))]"),
        ("", "x = [object()]"),
        ("", "x = []; x.append(x)"),
        ("", "y = []; x = [y]"),
        ("", "y = []; x = [y, y]; del y"),
        ("", "y = ([],); x = [y, y]; del y"),
        ("", "x = [float('nan')]"),
        ("", "x = {float('nan'): 1}"),
        ("", "x = {(1, []).__class__: 1}"),
        ("", "import sys; x = []; f = iter(x)"),
        ("class L(list): pass", "x = L()"),
        ("class N(int): pass", "x = [N(1)]"),
        ("held = [[1]]", "x = held[0]"),
        ("class N(int): pass", "x = N(1)"),
        ("held = [10**9]", "x = held[0]"),
        ("x = [{1}]", "x = 1"),
        ("x = [{1}]", "del x"),
        ("import weakref; x = {1}; r = weakref.ref(x)", "x = 1"),
        ("x = 1; y = 2", "del x; x = 1"),
        ("", "globals()[1] = 1"),
    ],
)
def test_what_is_not_told(before: str, code: str) -> None:
    """Mutable values, values with other owners, values whose end can have effects, and another order."""
    assert told(before, code) is None


def test_as_many_parts_as_may_be() -> None:
    """Counted over all containers, nested ones included."""
    assert told("", "x = [None] * 499 + [[]]") is not None
    assert told("", "x = [None] * 499 + [[0]]") is None


def test_what_a_container_holds_now() -> None:
    """Recorded each time, for as long as the copy stays the same."""
    namespace, copy = ran(""), ran("")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    exec("x = [1]; y = x", namespace)
    assert difference(base, namespace, {"x", "y"}) is not None
    exec("y.append({'two': 2})", namespace)
    bindings = difference(base, namespace, {"x", "y"})
    assert bindings is not None
    bring_about(copy, bindings)
    assert [1, {"two": 2}] == copy["x"]
    assert copy["x"] is copy["y"]


def test_what_is_still_held_may_be_let_go_of() -> None:
    """The object stays alive."""
    bindings, copy = told("x = y = [1]", "x = 1"), ran("x = y = [1]")
    assert bindings is not None
    bring_about(copy, bindings)
    assert (1, [1]) == (copy["x"], copy["y"])


def test_one_object_of_two_names_is_one_again() -> None:
    """Whether or not the copy has the object, and whatever it is."""
    bindings, copy = told("x = [1]", "y = x; a = b = 10**9; c = 10**9 + len(x) - 1"), ran("x = [1]")
    assert bindings is not None
    bring_about(copy, bindings)
    assert copy["y"] is copy["x"]
    assert copy["a"] is copy["b"]
    assert copy["a"] == copy["c"]
    assert copy["a"] is not copy["c"]


def test_another_name_for_what_is_not_plain_is_told() -> None:
    """A binding to the object says nothing about the object itself."""
    namespace = ran("x = [object()]")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    exec("y = x", namespace)
    assert difference(base, namespace, {"y"}) is not None
    assert difference(base, namespace, {"x", "y"}) is None


def test_the_empty_name_is_one_like_others() -> None:
    namespace = ran("x = 5.5") | {"": 10**9}
    base = BindingsBaseline.of(namespace)
    assert base is not None
    namespace["x"] = namespace[""]
    bindings, copy = difference(base, namespace, {"x"}), ran("x = 5.5") | {"": 10**9}
    assert bindings is not None
    bring_about(copy, bindings)
    assert copy["x"] is copy[""]


def test_an_old_value_may_have_another_name_now() -> None:
    """The baseline's reference does not count as another owner."""
    bindings, copy = told("x = 10**9; y = 0", "x, y, z = y, 10**9 - 1, x"), ran("x = 10**9; y = 0")
    assert bindings is not None
    bring_about(copy, bindings)
    assert (0, 10**9 - 1, 10**9) == (copy["x"], copy["y"], copy["z"])


@pytest.mark.parametrize(
    "before",
    [
        "x = [{1}]",
        "x = [[]]; y = x[0]",
        "x = []; f = iter(x)",
        "x = [1.5] * 501",
        "class L(list): pass\nx = L()",
    ],
)
def test_an_object_that_was_written_into_is_not_told(before: str) -> None:
    """The copy's object may hold something whose end has effects, or may have another owner."""
    namespace = ran(before)
    base = BindingsBaseline.of(namespace)
    assert base is not None
    assert difference(base, namespace, {"x"}) is None


changes = st.one_of(
    st.tuples(
        st.lists(plain, max_size=4).map("x = {!r}".format),
        st.lists(plain, max_size=4).map("x[len(x) // 2:] = {!r}".format),
    ),
    st.tuples(
        st.dictionaries(st.text(max_size=2), plain, max_size=4).map("x = {!r}".format),
        st.dictionaries(st.text(max_size=2), plain, max_size=4).map("x.update({!r})".format),
    ),
    st.tuples(st.lists(plain, max_size=4).map("x = {!r}".format), st.builds("x = [{!r}]".format, plain)),
)


@given(changes)
@example(("x = [1, 2, 3]", "x.sort(reverse=True); x[1:] = []"))
@example(("x = {'a': 1, 'b': 2}", "x['a'] = x.pop('b'); x[3] = {}"))
@example(("x = {'a': [1, {}]}", "x['a'][1]['b'] = (x['a'][0], 4); x['a'].pop(0)"))
@example(("x = ([],)", "x[0].append(1)"))
@example(("x = [1]", "x += [10**9]; x = tuple(x)"))
def test_a_container_of_plain_values_is_told_anew(change: tuple[str, str]) -> None:
    """The copy has it with different content."""
    before, code = change
    bindings, copy, wanted = told_all(before, code), ran(before), ran(f"{before}\n{code}")
    assert bindings is not None
    bring_about(copy, bindings)
    assert repr(wanted["x"]) == repr(copy["x"])


elements = st.integers(0, 40) | st.sampled_from(["two words", None, 2.5, b"3", "a", "b"])
acts = st.one_of(
    st.builds("x.add({!r})".format, elements),
    st.builds("x.discard({!r})".format, elements),
    st.builds("x and x.pop()".format),
    st.builds("x.update({!r})".format, st.lists(elements, max_size=30)),
    st.builds("x = set({!r})".format, st.lists(elements, max_size=30)),
)


@given(st.lists(acts, min_size=1, max_size=6).map("; ".join))
@example("x = {8, 0}")
@example("x and x.pop(); x.add(0); x.add(38)")
@example("x = set(range(100)); x -= set(range(90))")
@example("x = set(map(str, range(300))); [x.pop() for _ in range(7)]")
@pytest.mark.skipif(not IS_READABLE, reason="how sets lie cannot be read here")
def test_a_set_is_told_with_how_it_lies(code: str) -> None:
    """Its iteration order and its next pop depend on what it has held before."""
    bindings, copy, wanted = told_all("x = {1, 9}", code), ran("x = {1, 9}"), ran(f"x = {{1, 9}}\n{code}")
    assert bindings is not None
    bring_about(copy, bindings)
    for _ in range(3):
        assert list(wanted["x"]) == list(copy["x"])  # type: ignore[call-overload]
        for namespace in (wanted, copy):
            exec("x.update(range(3, 90, 13)); x.discard(3); x.pop()", namespace)


def test_a_container_that_was_written_into_is_told_from_then_on() -> None:
    """Also after cells that have not written to it: the copy still has the old content."""
    namespace = ran("x = y = [1]; z = 0")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    for code, written in (("y.append(2)", {"y"}), ("z = 5.5", {"z"}), ("a = x", {"a"}), ("y = 3", {"y"})):
        exec(code, namespace)
        bindings, copy = difference(base, namespace, written), ran("x = y = [1]; z = 0")
        assert bindings is not None
        bring_about(copy, bindings)
        assert namespace.keys() == copy.keys()
        names = [name for name in namespace if name != "__builtins__"]
        assert [namespace[name] for name in names] == [copy[name] for name in names]
        for one in names:
            for other in names:
                assert (namespace[one] is namespace[other]) == (copy[one] is copy[other])


def test_as_many_parts_as_may_be_looked_at_for_a_copy() -> None:
    """Other containers take a copy when they change."""
    namespace = ran("x = [1] * 499; y = [1] * 499; z = []")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    assert {"x", "y"} == base.values
    for each in ("x", "y"):
        namespace[each].append(2)  # type: ignore[attr-defined]
        assert difference(base, namespace, {each}) is not None
    namespace["z"].append(2)  # type: ignore[attr-defined]
    assert difference(base, namespace, {"z"}) is None


def test_a_large_value_may_lie_where_another_did() -> None:
    """The baseline holds small values only. A value written to a name that seems unchanged is a different one."""
    namespace = ran(f"x = 'a' * {MAX_BINDINGS + 1}")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    assert difference(base, namespace, {"x"}) is None
    assert difference(base, namespace, set()) is not None


def test_names_that_lie_where_others_did() -> None:
    """A reused address does not hide a binding: the baseline keeps the previous object alive."""
    namespace = ran("x = 0.5")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    exec("for i in (1, 2):\n    x = i + 0.25", namespace)
    bindings = difference(base, namespace, {"x", "i"})
    assert bindings is not None
    assert {"x", "i"} == set(bring_about(ran("x = 0.5"), bindings)[0])


def test_as_many_names_as_may_be() -> None:
    names = [f"n{number} = {number}" for number in range(MOST_NAMES + 1)]
    assert told("", "\n".join(names[:-1])) is not None
    assert told("", "\n".join(names)) is None


def test_as_many_bytes_as_may_be() -> None:
    """The message's frame counts: about twenty bytes for one name."""
    assert told("", f"x = '{{}} '.format('y' * {MAX_BINDINGS - 40})") is not None
    assert told("", f"x = '{{}} '.format('y' * {MAX_BINDINGS - 10})") is None


def test_a_module_that_came_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a module may have other effects."""
    namespace = ran("")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    namespace["x"] = 1
    monkeypatch.setitem(sys.modules, "some_module_that_came_along", ModuleType("some_module_that_came_along"))
    assert difference(base, namespace, {"x"}) is None


def test_a_namespace_that_is_too_large() -> None:
    assert BindingsBaseline.of({f"n{number}": number for number in range(2_000)}) is not None
    assert BindingsBaseline.of({f"n{number}": number for number in range(2_001)}) is None


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("", "import json"),
        ("import json", "import json"),
        ("", "from collections import Counter as x, deque"),
        ("", "from math import floor as x"),
        ("import json", "json = json.dumps"),
    ],
)
def test_what_was_imported_is_the_same_object_again(before: str, code: str) -> None:
    bindings, copy, wanted = told_all(before, code), ran(before), ran(f"{before}\n{code}")
    assert bindings is not None
    bring_about(copy, bindings)
    assert wanted.keys() == copy.keys()
    assert all(wanted[name] is copy[name] for name in wanted if name != "__builtins__")


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("", "import types; x = types.ModuleType('json'); del types"),
        ("", "from math import pi"),
        ("import json", "def x(): pass\nx.__module__ = 'json'"),
        ("", "class x: __module__ = 'json'"),
        ("import abc", "x = abc.ABC"),
    ],
)
def test_what_only_looks_imported(before: str, code: str) -> None:
    assert told(before, code) is None


def test_functions_are_told_with_their_cells() -> None:
    """A cell's functions share globals; functions that call each other still do so."""
    source = "def f(n=2):\n    return n\n\ndef g():\n    return f(), g"
    namespace, copy = ran(""), ran("")
    base = BindingsBaseline.of(namespace)
    assert base is not None
    exec(compile(source, "<cell 1>", "exec"), namespace)
    bindings = difference(base, namespace, {"f", "g"}, {"<cell 1>": (source, [3])}.get)
    assert bindings is not None
    assert (["f", "g"], {"<cell 1>": (source, [3])}) == bring_about(copy, bindings)
    assert (2, copy["g"]) == copy["g"]()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("held = []", "def x(): pass\nheld.append(x)"),
        ("", "def x(n=[]): pass"),
        ("", "def x(*, n=object()): pass"),
        ("", "def x(n): pass\nx.__annotations__ = {'n': list[int]}"),
        ("", "def x(): pass\nx.n = 1"),
        ("", "x = (lambda n: lambda: n)(1)"),
        ("", "def x(): pass\nx.__doc__ = 'another'"),
        ("", "import weakref\ndef x(): pass\nr = weakref.ref(x)"),
        ("", "def x(): pass\ny = [x]"),
        ("import json", "x = type(json.dumps)((lambda: 1).__code__, {})"),
        ("class F:\n    def f(self): pass", "x = F().f"),
        ("", "def x(): return [n for n in {8, 0}]"),
        ("", "def x():\n    def y(n):\n        return [n in (1, 2) for n in {16, 8, 0}]\n    return y"),
    ],
)
def test_functions_that_have_more_than_code(before: str, code: str) -> None:
    assert told(before, code) is None


@pytest.mark.parametrize(
    "code", ["def x(n): return n in {0, 8}", "def x(n):\n    for n in {0, 1, 2.5}: return n"]
)
def test_a_function_with_a_set_in_its_code(code: str) -> None:
    """Where it lies as it would if it were made in the recorded order."""
    assert told("", code) is not None


@pytest.mark.parametrize(
    "code",
    ["def x(): return 2", "x = 1", "del x", "import json as x"],
)
def test_a_function_may_go(code: str) -> None:
    """What it holds has no effect then."""
    bindings, copy = told_all("def x(): return 1", code), ran("def x(): return 1")
    assert bindings is not None
    bring_about(copy, bindings)
    assert ("x" in copy) == (code != "del x")


def test_what_a_default_has_may_not_go() -> None:
    assert told("def x(n=[object()]): pass", "x = 1") is None


@pytest.mark.parametrize(
    "code",
    [
        "class x:\n    def __getattribute__(self, name): raise SystemExit(name)\nx = x()",
        "class D(dict):\n    def items(self): raise SystemExit\ndef x(): pass\nx.__annotations__ = D(n=int)",
        "class D(dict):\n    def __len__(self): raise SystemExit\ndef x(): pass\nx.__dict__ = D()",
        "class S(str):\n    def __eq__(self, other): raise SystemExit\ndef x(): pass\nx.__doc__ = S()",
        "def x(): pass\nx.__code__ = x.__code__.replace(co_consts=(None, object()))",
        "def x(): pass\nx.__defaults__ = type('T', (tuple,), {})()",
    ],
)
def test_values_that_harm_whoever_looks_at_them(code: str) -> None:
    """They are not recorded as bindings, and no user code runs."""
    assert told("", code) is None


@pytest.mark.parametrize(
    "code",
    [
        "x = df.groupby('k').mean()",
        "x = df['v'].describe()",
        "x = df[df.v > 1]; x.index.name = 'i'",
        "x = df.nlargest(2, 'v'); x.columns.name = 5",
        "x = df.copy(); x.loc[0, 'k'] = None; x.loc[1, 'v'] = float('nan')",
        "x = pd.DataFrame({'a': [1, 2], 'b': [3, 4]}).T",
        "x = y = df.head(2)",
        "x = pd.Series(['a', None, 'b'], name='n')",
        "x = pd.DataFrame()",
    ],
)
def test_a_small_frame_is_told(code: str) -> None:
    """Its indexes, their names and views of it in the copy are the same; to a tracker it is the same frame."""
    bindings, copy, wanted = told(FRAME, code), ran(FRAME), ran(f"{FRAME}\n{code}")
    assert bindings is not None
    bring_about(copy, bindings)
    made, there = copy["x"], wanted["x"]
    assert repr(there) == repr(made)
    assert ("y" in copy) == (copy.get("y") is made)
    versions = [Tracker(names, "/").versions([name("x")]) for names in (wanted, copy)]
    assert versions[0] == versions[1]


@pytest.mark.parametrize(
    "code",
    [
        "x = df.set_index('k')",
        "x = df['v']",
        "y = df.copy(); x = y[['v']]; z = y.columns.values",
        "x = df.copy(); x.attrs['a'] = 1",
        "x = df.copy(); y = x.index",
        "x = df.copy().set_flags(allows_duplicate_labels=False)",
        "import weakref; x = df.copy(); y = weakref.ref(x)",
        "x = pd.DataFrame({'a': [object()]})",
        "x = pd.DataFrame({'a': [1]}, index=pd.to_datetime(['2026-01-01']))",
        "x = pd.DataFrame({'a': range(600)})",
        "x = df.copy(); x.loc[:, 'v'] = 0; y = x._mgr.blocks[0]",
        "class F(pd.DataFrame): pass\nx = F({'a': [1]})",
    ],
)
def test_a_frame_of_which_others_have_a_part_is_not_told(code: str) -> None:
    """Nor is one of other types, or with additional attributes."""
    assert told(FRAME, code) is None


def test_a_frame_may_go_unless_it_has_objects() -> None:
    assert told(f"{FRAME}\nx = df['v'] * 2", "x = 1") is not None
    assert told(f"{FRAME}\nx = pd.DataFrame({{'a': [object()]}})", "x = 1") is None
