"""Certain failures of a cell, found by its syntax and the namespace."""

import ast
import builtins

import pytest

from cenote_worker.jail.cells.static_errors import bound_names, certain_failures, parameters_of


def found(code, **names):
    failures = certain_failures(
        ast.parse(code).body, names, vars(builtins), "<cell 1>", lambda _function: True
    )
    return [(sorted(each.names), each.attribute, each.statement) for each in failures]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a", [(["a"], "", 0)]),
        ("print(1)\na + b", [(["a"], "", 1), (["b"], "", 1)]),
        ("x = a\nx", [(["a"], "", 0)]),
        ("a = 1\na", []),
        ("a = a + 1\nb", [(["a"], "", 0), (["b"], "", 1)]),
        ("a += b\nb = 1", [(["a"], "", 0), (["b"], "", 0)]),
        ("del a, b[a]", [(["a"], "", 0), (["b"], "", 0)]),
        ("a[(a := {})] = a", [(["a"], "", 0)]),
        ("a, b[a] = 1, c", [(["c"], "", 0), (["b"], "", 0)]),
        ("x = (a := 1) + a", []),
        ("x = [a for a in b] + [a]", [(["b"], "", 0)]),
        ("for a in a: pass", [(["a"], "", 0)]),
        ("def a(b=a): pass", [(["a"], "", 0)]),
        ("if b: a = 1\na", [(["b"], "", 0)]),
        ("def f(a): return b", []),
        ("with open('x') as f: f.write(a)", [(["a", "open"], "", 0)]),
        ("with lock: a", [(["lock", "open"], "", 0)]),
        ("open = 1\nwith open('x') as f: f.write(a)", []),
        ("while True: pass\na", []),
        ("while True: break\na", [(["a"], "", 1)]),
        ("raise ValueError\na", []),
        ("_, __file__", []),
    ],
)
def test_names(code, expected):
    assert expected == found(code)


def test_calls():
    class C:
        def method(self, a):
            """One argument."""

    def function(a, b=1):
        """One or two."""

    known = {"function": function, "c": C(), "other": print}
    assert [] == found("function(1)\nfunction(1, b=2)\nc.method(1)\nother()", **known)
    assert [(["function"], "", 0)] == found("function()", **known)
    assert [(["c"], "method", 0)] == found("c.method(1, 2)", **known)
    assert [] == found("function(*[1, 2, 3])", **known)


def test_what_is_not_watched_is_not_looked_at():
    failures = certain_failures(
        ast.parse("f(1)").body, {"f": lambda: None}, vars(builtins), "<cell 1>", lambda _function: False
    )
    assert [] == list(failures)


def test_the_stand_in_raises_what_the_call_would():
    def function(a, /, *, b):
        raise AssertionError("it is called")

    cell, names = ast.parse("function(1, c=print('x'))").body, {"function": function}
    (failure,) = certain_failures(cell, names, vars(builtins), "<cell 1>", lambda _function: True)
    with pytest.raises(TypeError) as raised:
        eval(failure.stand_in, {"function": function})
    with pytest.raises(TypeError) as expected:
        function(1, c=None)
    assert str(expected.value) == str(raised.value)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = b.c = d[0] = 1", {"a"}),
        ("for a, (b, *c) in x: pass", {"a", "b", "c"}),
        ("def f(a, *b, c=1, **d): e = 1", {"f", "a", "b", "c", "d", "e"}),
        ("import a.b, c as d\nfrom e import f as g, h", {"a", "d", "g", "h"}),
        ("match x:\n    case A(b=c) | [c, *d] | {1: e, **f} as g: pass", {"c", "d", "e", "f", "g"}),
        (
            "try: pass\nexcept E as a: pass\ndel b\n(c := 1)\nlambda d: [e for e in x]",
            {"a", "b", "c", "d", "e"},
        ),
        ("def f():\n    global a\n    def g():\n        nonlocal b", {"f", "a", "g", "b"}),
        ("with x as (a, b): pass\nclass C(D): e = 1", {"a", "b", "C", "e"}),
    ],
)
def test_bound_names(code, expected):
    assert expected == bound_names(ast.parse(code).body)


def test_parameters_are_those_of_the_code():
    def function(a, /, b, c=1, *d, e, f=2, **g):
        """Of each kind."""

    found = parameters_of(function)
    assert ("a", "b", "c") == found.positional
    assert ("e", "f") == found.keyword_only
    assert {"c", "f"} == found.optional
    assert (1, True, True) == (found.positional_only, found.takes_more, found.takes_any_keyword)
