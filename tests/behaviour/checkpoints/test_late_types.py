"""Type aliases and type parameters of Python 3.12 and later: unchanged, and evaluated no earlier than before."""

from __future__ import annotations

import sys

import pytest
from tests.unit.checkpoints.test_state_pickles import names_of, ran, refilled

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_worker.jail.state.variable_groups import grouped

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
needs_defaults = pytest.mark.skipif(sys.version_info < (3, 13), reason="syntax of 3.13")

LATE = [
    ("type X = list[Y]", "Y = int", "X.__value__ == list[int]"),
    ("log = []\ntype X = log.append(1) or int\nX.__value__", "X.__value__", "(log, X.__value__) == ([1], int)"),
    ("log = []\ntype X = log.append(1) or int", "X.__value__", "(log, X.__value__) == ([1], int)"),
    ("type Tree = dict[str, Tree]\nTree.__value__", "", "Tree.__value__ == dict[str, Tree]"),
    ("type X = 'text'\nX.__value__", "", "(X.__value__, X.__name__, X.__module__) == ('text', 'X', '__main__')"),
    ("from typing import TypeAliasType\nX = TypeAliasType('X', len)", "", "X.__value__ is len"),
    ("type Pair[A] = tuple[A, Y]\nP = Pair[str]", "Y = int", "Pair.__value__ == tuple[Pair.__type_params__[0], int]"),
    ("type Pair[A] = tuple[A, int]\nP = Pair[str]", "", "P.__origin__ is Pair and P.__args__ == (str,)"),
    ("def f():\n  type X = list[int]\n  return X\nx = f()", "", "x.__value__ == list[int]"),
    ("class C:\n  type X = list[n]\n  n = int", "", "C.X.__value__ == list[int]"),
    ("type X = int\ndef f(a: X) -> X: return a", "", "f(1) == 1 and f.__annotations__['a'] is X"),
    ("def f[T: int](a: T) -> T: return a", "", "f.__type_params__ == (f.__annotations__['a'],)"),
    ("def f[T: int](a: T) -> T: return a", "", "f.__type_params__[0].__bound__ is int"),
    ("class C[T: (int, str)]: pass\nc = C[int]()", "", "C.__type_params__[0].__constraints__ == (int, str)"),
    ("class C[T]:\n  def m[U](self, u: U) -> T: return u\nc = C()", "", "repr(C.m.__type_params__) == '(U,)'"),
    ("class C[T]: pass\nc = C()", "", "C.__orig_bases__[0].__args__ == C.__type_params__ == C.__parameters__"),
    ("class C[T]: pass", "", "(lambda t: (t.__infer_variance__, repr(t)))(C.__type_params__[0]) == (True, 'T')"),
    ("from typing import NamedTuple\nclass N[T](NamedTuple):\n  a: T\nn = N[int](1)", "",
     "(n, n.a, type(n)) == ((1,), 1, N)"),
    ("def f[*Ts, **P](*a: *Ts): pass", "", "repr(f.__type_params__) == '(Ts, P)'"),
    pytest.param("class C[T = int, **P = [str]]: pass", "",
                 "[each.__default__ for each in C.__type_params__] == [int, [str]]", marks=needs_defaults),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "question"), LATE)
def test_it_comes_back_as_it_was(before: str, after: str, question: str) -> None:
    """Twice: the restored value is stored again."""
    namespace = refilled(refilled(ran(before)))
    exec(after, namespace)
    assert eval(question, namespace)


def test_a_bound_that_cannot_be_worked_out_has_the_class_rebuilt() -> None:
    namespace = ran("class C[T: B]: pass")
    assert {"C"} == set(grouped(names_of(namespace), namespace, {}).refused)


def test_branches_have_aliases_and_named_tuples() -> None:
    with PythonRuntime() as runtime:
        runtime.execute(
            "type Row = list[Cell]\nfrom typing import NamedTuple\nclass P(NamedTuple):\n    row: Row"
        )
        runtime.execute("p = P([1])")
        with runtime.fork() as branch:
            branch.execute("Cell = int")
            row, value = branch.execute("p.row").value, branch.execute("Row.__value__").value
            assert ("[1]", "list[int]") == (row, value)


def test_functions_of_a_client_may_speak_of_its_aliases() -> None:
    """A jail has no module of the client in which to look them up."""
    own = ran("type Amount = int\ndef double(amount: Amount) -> Amount: return 2 * amount")
    with PythonRuntime(functions=[Function(own["double"])]) as runtime:
        found = runtime.execute("double(4), double.__annotations__['amount'].__value__")
        assert "(8, <class 'int'>)" == found.value


def test_names_of_a_class_body_are_found_in_the_class_that_is_made() -> None:
    """From a client to a jail and on to others, and then in a branch: later changes of the class count."""
    own = ran("class C:\n  type X = list[n]\n  n = int")
    with PythonRuntime(variables=[Variable("C", own["C"])]) as first, PythonRuntime() as second:
        second.inject(Variable("C", first.share("C")))
        with PythonRuntime() as third:
            third.inject(Variable("C", second.share("C")))
            third.execute("C.n = str")
            with third.fork() as branch:
                assert "list[str]" == branch.execute("C.X.__value__").value
            assert "list[str]" == third.execute("C.X.__value__").value
        assert "list[int]" == second.execute("C.X.__value__").value
