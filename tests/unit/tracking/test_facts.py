"""What code can touch according to its bytecode, by tables."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import typing
from types import CodeType, ModuleType

import pytest

from cenote_worker.jail.tracking.code.bytecode_effects import Facts, facts_of, facts_of_cell, looked_up


def facts(source: str) -> Facts:
    return facts_of_cell(compile(source, "<cell 1>", "exec", dont_inherit=True))


@pytest.mark.parametrize(
    ("source", "loads", "stores", "first"),
    [
        ("x += 1", "x", "x", ""),
        ("x = 1\ny = x", "x", "x y", "x y"),
        ("y = x\nx = 1", "x", "x y", "y"),
        ("if c:\n    x = 1\nx", "c x", "x", ""),
        ("for i in s:\n    pass\nx = 1", "s", "i x", "x"),
        ("while c:\n    x = 1", "c", "x", ""),
        ("try:\n    x = f()\nfinally:\n    pass", "f", "x", ""),
        ("del x", "x", "x", ""),
        ("def f(): return rate", "", "f", "f"),
        ("def f(): return rate\ny = f()", "f rate", "f y", "f y"),
        ("f()\ndef f(): return rate", "f rate", "f", ""),
        ("def f(x=rate): pass", "rate", "f", "f"),
        ("@deco\ndef f(): return rate", "deco rate", "f", "f"),
        ("def f():\n    def g(): return rate\n    return g\nf()", "f rate", "f", "f"),
        ("def f():\n    global n\n    n = 1\nf()", "f", "f n", "f"),
        ("f = lambda: rate", "", "f", "f"),
        ("fs = [lambda: rate]", "rate", "fs", "fs"),
        ("class C:\n    z = k\n    def m(self): return rate", "__name__ k", "C", "C"),
        ("class C:\n    def m(self): return rate\nC().m()", "__name__ C rate", "C", "C"),
        ("class C(B):\n    def m(self): return rate", "__name__ B rate", "C", "C"),
        ("r = [x for x in s if x in t]", "s t", "r", "r"),
        ("r = {f(x) for x in s}\nx = 1", "f s", "r x", "r x"),
        ("r = [[x for x in s] for y in t]\nz = {x: r for x in s if x}\nr", "s t r", "r z", "r z"),
        ("try:\n    r = [x for x in s]\nexcept E:\n    pass\nx = r", "s E r", "r x", ""),
        ("r = {a: b for a, b in s}\nq = [lambda: a + c for a, b, c in s]\nr", "s r", "r q", "r q"),
        ("with s:\n    r = [x for x in s]\nx = r", "s r", "r x", ""),
        ("with s: r = 1\nx = 1", "s", "r x", ""),
        ("g = (x * k for x in s)", "k s", "g", "g"),
        ("import a.b as c\nc.d", "c", "c", "c"),
    ],
)  # fmt: skip
def test_names(source: str, loads: str, stores: str, first: str) -> None:
    """Names read, names bound, and those that are always bound before they are read."""
    found = facts(source)
    assert set(loads.split()) == found.loads - {"__build_class__"}
    assert set(stores.split()) == found.stores
    assert set(first.split()) == found.first


def test_names_of_a_cell_that_awaits() -> None:
    """An exception from an awaited object leaves the cell like any other."""
    source = "x = await f()\ny = [await z for z in x]\nz = 1"
    code = compile(source, "<cell 1>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert {"x", "y", "z"} == facts_of_cell(code).first


@pytest.mark.parametrize(
    ("source", "chain"),
    [
        ("np.random.rand(3)", "np.random.rand"),
        ("g = np.random.default_rng()", "np.random.default_rng()"),
        ("json.trap = 1", "json.trap="),
        ("del a.b.c", "a.b.c="),
        ("v = locals()", "locals()"),
    ],
)
def test_chains(source: str, chain: str) -> None:
    assert chain in facts(source).chains


def test_arguments_are_told_from_none() -> None:
    assert "np.random.default_rng()" not in facts("np.random.default_rng(1)").chains


def test_local_names_of_a_function_are_its_own() -> None:
    assert "locals()" not in facts("def f(): return locals()\nf()").chains


def test_star_imports_are_seen() -> None:
    assert facts("from math import *").star
    assert not facts("from math import pi").star


@pytest.mark.parametrize(
    "module", [argparse, dataclasses, enum, inspect, typing], ids=lambda each: each.__name__
)
def test_the_names_alone_are_the_same_names(module: ModuleType) -> None:
    """Of each function and class of a large module, with what is defined in them."""
    waiting = [compile(inspect.getsource(module), "<string>", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        assert facts_of(code).loads == looked_up(code), code
        waiting.extend(each for each in code.co_consts if type(each) is CodeType)


def test_names_behind_many_others_are_found() -> None:
    """An instruction has a second half for them."""
    source = "\n".join(f"a{number}" for number in range(700))
    code = compile(source, "<string>", "exec", dont_inherit=True)
    assert {f"a{number}" for number in range(700)} == looked_up(code)


def test_annotations_name_what_they_say() -> None:
    code = compile("class C:\n    x: 'Other'", "<string>", "exec", dont_inherit=True)
    assert facts_of(code).loads == looked_up(code)
