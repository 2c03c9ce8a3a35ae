"""A cell that is certain to fail runs nothing; a cell that may succeed is never refused."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.kernel.checked_cells import CheckedCells


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    with CheckedCells(str(tmp_path_factory.mktemp("cells"))) as made:
        yield made


_F = "def f(a, /, b, c=1, *, d, e=2):\n    print('f ran')"

REFUSED = [
    (("print('ran')\nmissing",), "NameError", "name 'missing' is not defined", 2),
    (("print('ran')\nx = [1, {missing: 2}]",), "NameError", "name 'missing'", 2),
    (("import json, math\nprint('ran')\nprint(f'{missing:>{3}}')",), "NameError", "name 'missing'", 3),
    (("print('ran')\nif missing: pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\nwhile missing: pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\nfor i in missing: pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\n[i for i in missing]",), "NameError", "name 'missing'", 2),
    (("print('ran')\nwith missing: pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\nassert missing",), "NameError", "name 'missing'", 2),
    (("print('ran')\nraise missing",), "NameError", "name 'missing'", 2),
    (("print('ran')\nmatch missing:\n    case _: pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\ndef f(a=missing): pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\n@missing\ndef f(): pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\nclass A(missing): pass",), "NameError", "name 'missing'", 2),
    (("print('ran')\nlambda a=missing: a",), "NameError", "name 'missing'", 2),
    (("print('ran')\nmissing and 1",), "NameError", "name 'missing'", 2),
    (("print('ran')\nmissing < 1 < other",), "NameError", "name 'missing'", 2),
    (("print('ran')\nx = {}\nx[missing] = 1",), "NameError", "name 'missing'", 3),
    (("print('ran')\nmissing.a = 1",), "NameError", "name 'missing'", 2),
    (("print('ran')\ntry: other\nfinally: missing",), "NameError", "name 'missing'", 3),
    (("print('ran')\ntry: 1\nexcept ValueError: 2\nfinally: missing",), "NameError", "name 'missing'", 4),
    (("print('ran')\nwith open('a', 'w') as file:\n    file.write(missing)",), "NameError", "name 'missing'", 3),
    (("print('ran')\nimport asyncio\nawait asyncio.sleep(missing)",), "NameError", "name 'missing'", 3),
    (("def g(): return missing", "print('ran')\nprint(missing)"), "NameError", "name 'missing'", 2),
    (("x = 1", "del x", "print('ran')\nx"), "NameError", "name 'x'", 2),
    (("print('ran')\nlater = later + 1\nother",), "NameError", "name 'later'", 2),
    (("print('ran')\nlater += other",), "NameError", "name 'later'", 2),
    (("print('ran')\ndel later",), "NameError", "name 'later'", 2),
    (("print('ran')\nlater.append(1)\nlater = []",), "NameError", "name 'later'", 2),
    (("import numpy as np", "print('ran')\nnp.zeros(3)\nnp.ones(missing)"), "NameError", "name 'missing'", 3),
    (("if __name__ == '__main__':\n    print('ran')\nmissing",), "NameError", "name 'missing'", 3),
    (("import re\nr = re.compile('a')\nprint('ran')\ngetattr(r, 'pattern')\nmissing",), "NameError", "name 'miss", 5),
    ((_F, "print('ran')\nf()"), "TypeError", "f() missing 2 required positional arguments: 'a' and 'b'", 2),
    ((_F, "print('ran')\nf(1, 2)"), "TypeError", "f() missing 1 required keyword-only argument: 'd'", 2),
    ((_F, "print('ran')\nf(1, 2, 3, 4, d=1)"), "TypeError", "f() takes from 2 to 3 positional arguments but", 2),
    ((_F, "print('ran')\nf(1, 2, d=1, z=2)"), "TypeError", "f() got an unexpected keyword argument 'z'", 2),
    ((_F, "print('ran')\nf(1, 2, d=1, b=2)"), "TypeError", "f() got multiple values for argument 'b'", 2),
    ((_F, "print('ran')\nf(b=1, a=1, d=1)"), "TypeError", "f() got some positional-only arguments passed as", 2),
    ((_F, "print('ran')\nx = [f(1, 2, d=1), f(1)]"), "TypeError", "f() missing 1 required positional", 2),
    (("async def g(a): pass", "print('ran')\nawait g()"), "TypeError", "g() missing 1 required positional", 2),
    (("def g(a): yield a", "print('ran')\ng()"), "TypeError", "g() missing 1 required positional", 2),
    (("g = lambda a: a", "print('ran')\ng()"), "TypeError", "<lambda>() missing 1 required positional", 2),
    (
        ("class C:\n    def m(self, a): pass\nc = C()", "print('ran')\nc.m()"),
        "TypeError",
        "C.m() missing 1 required positional argument: 'a'",
        2,
    ),
    (
        ("class C:\n    def m(self, a): pass\nc = C()", "print('ran')\nc.m(1, 2)"),
        "TypeError",
        "C.m() takes 2 positional arguments but 3 were given",
        2,
    ),
    (
        ("class C:\n    @staticmethod\n    def m(a): pass\nc = C()", "print('ran')\nc.m(1, 2)"),
        "TypeError",
        "C.m() takes 1 positional argument but 2 were given",
        2,
    ),
    (
        ("class C:\n    @classmethod\n    def m(cls): pass\nc = C()", "print('ran')\nc.m(1)"),
        "TypeError",
        "C.m() takes 1 positional argument but 2 were given",
        2,
    ),
    (
        ("class C:\n    def m(self): pass\nm = C().m", "print('ran')\nm(1)"),
        "TypeError",
        "C.m() takes 1 positional argument but 2 were given",
        2,
    ),
]  # fmt: skip
"""Cells, the last one of which is certain to fail; the error, and its line."""


@pytest.mark.parametrize(("code", "kind", "message", "line"), REFUSED)
def test_a_cell_that_is_certain_to_fail_runs_nothing(cells, code, kind, message, line):
    """Without the check the class, Python's message and the place are the same; only some statements have run."""
    checked, ran = cells.run(*code), cells.run(*code, checking=False)
    assert checked.is_refused
    assert "" == checked.stdout
    assert kind == checked.error[0]
    assert checked.error[1].startswith(message)
    assert line == checked.line
    assert not ran.is_refused
    assert _error(checked) == _error(ran)


def _error(ran):
    kind, message = ran.error
    return kind, message.partition("; ")[0], ran.line, ran.column


_SOURCE = "def g():\\n    import __ma' 'in__ as m\\n    m.later = 1\\ng()\\n"
_MODULE = f"with open('own.py', 'w') as file: file.write('{_SOURCE}')"

_THREAD = """import threading, queue
q, done = queue.Queue(), queue.Queue()
def g():
    global later
    q.get(); later = 1; done.put(1)
threading.Thread(target=g, daemon=True).start()"""
_MANAGER = (
    "import contextlib\n@contextlib.contextmanager\ndef g():\n    global later\n    later = 1\n    yield"
)
_TASK = "import asyncio\nasync def g():\n    global later\n    later = 1\nt = asyncio.create_task(g())\ndel g"
_HINTS = "import typing\nclass A:\n    x: '(later := 1)'\ntyping.get_type_hints(A)"
_SPECIAL = (
    "class A:\n    def __{}__(self, *_):\n        global later\n        later = 1\n        return {}\na = A()"
)
_QUIET = "class Quiet:\n    def __enter__(self): pass\n    def __exit__(self, *_): return True\n"
_WRAPS = (
    "import functools\ndef deco(g):\n    @functools.wraps(g)\n    def call(): return g(1)\n    return call\n"
)

RUNS = [
    "from string import *\nascii_letters",
    "exec('later = 1')\nlater",
    "exec(compile('later = 1', '', 'exec'))\nlater",
    "eval('(later := 1)')\nlater",
    "e = exec\ne('later = 1')\nlater",
    ("e = exec", "e('later = 1')\nlater"),
    ("tools = {'e': exec}", "tools['e']('later = 1', globals())\nlater"),
    "list(map(exec, ['later = 1']))\nlater",
    "globals()['later'] = 1\nlater",
    "locals()['later'] = 1\nlater",
    "vars()['later'] = 1\nlater",
    "globals().update(later=1)\nlater",
    ("g = globals()", "g['later'] = 1\nlater"),
    "import sys\nsetattr(sys.modules['__main__'], 'later', 1)\nlater",
    "import sys\nsys._getframe().f_globals['later'] = 1\nlater",
    "import inspect\ninspect.currentframe().f_globals['later'] = 1\nlater",
    "import inspect\ninspect.stack()[0].frame.f_globals['later'] = 1\nlater",
    "from sys import _getframe as frame\nframe().f_globals['later'] = 1\nlater",
    "import __main__\n__main__.later = 1\nlater",
    "import __main__ as m\nm.later = 1\nlater",
    ("import __main__ as m", "m.later = 1\nlater"),
    "import importlib\nimportlib.import_module('__main__').later = 1\nlater",
    "import builtins\nbuiltins.later = 1\nlater",
    ("import builtins as b", "b.later = 1\nlater"),
    ("from builtins import exec as run", "run('later = 1')\nlater"),
    "print.__self__.later = 1\nlater",
    "__builtins__.later = 1\nlater",
    "getattr(print, '__se' + 'lf__').later = 1\nlater",
    "def g(): pass\ng.__globals__['later'] = 1\nlater",
    ("def g(): pass", "g.__globals__['later'] = 1\nlater"),
    "from operator import attrgetter\nattrgetter('__globals__')(lambda: 1)['later'] = 1\nlater",
    "def g():\n    global later\n    later = 1\ng()\nlater",
    ("def g():\n    global later\n    later = 1", "g()\nlater"),
    ("def g():\n    global later\n    later = 1", "h = g", "del g", "h()\nlater"),
    ("def g():\n    global later\n    later = 1", "class A:\n    x = property(lambda s: g())\na = A()", "a.x\nlater"),
    (_SPECIAL.format("add", 1), "a + 1\nlater"),
    (_SPECIAL.format("repr", "''"), "print(a)\nlater"),
    (_SPECIAL.format("iter", "iter([])"), "for i in a: pass\nlater"),
    ("def g():\n    global later\n    later = 1\n    yield\nx = g()", "del g", "next(x)\nlater"),
    ("import functools\n@functools.lru_cache\ndef g():\n    global later\n    later = 1", "g()\nlater"),
    (_MANAGER, "with g(): pass\nlater"),
    (_THREAD, "q.put(1)\ndone.get()\nlater"),
    (_TASK, "await t\nlater"),
    (_MODULE, "import own\nlater"),
    (_MODULE, "import own\nown.g()", "later"),
    (_MODULE, "import own\nfrom own import g\ndel own", "del later", "g()\nlater"),
    ("import timeit", "timeit.timeit('import __ma' 'in__; __ma' 'in__.later = 1', number=1)\nlater"),
    "import gettext\ngettext.install('x', names=['ngettext'])\nngettext",
    "import cProfile\ncProfile.run('later = 1')\nlater",
    "import unittest.mock as m\nwith m.patch('__main__.later', 1, create=True): later",
    _HINTS + "\nlater",
    "%time later = 1\nlater",
    "later = !echo 1\nlater",
    "%%capture later\nprint(1)",
    "later = 1\nlater = later + 1\nlater += 1\ndel later",
    "if True: later = 1\nlater",
    "for later in [1]: pass\nlater",
    "(later := 1)\nlater",
    "[later := i for i in [1]]\nlater",
    "match 1:\n    case later: pass\nlater",
    "match [1, 2]:\n    case [1, *later]: pass\nlater",
    "match {1: 2, 3: 4}:\n    case {1: 2, **later}: pass\nlater",
    "try: 1 / 0\nexcept ZeroDivisionError as later: later",
    "with open('x', 'w') as later: later",
    "import json as later\nlater",
    "import os.path\nos",
    "from json import loads as later\nlater",
    "def later(): pass\nlater",
    "class later: pass\nlater",
    "later: int = 1\nlater",
    "(later, [*others]) = 1, [2]\nlater, others",
    "try: missing\nexcept NameError: pass",
    "try:\n    missing\nexcept: pass",
    "try:\n    try: missing\n    finally: pass\nexcept NameError: pass",
    "try: missing\nexcept* NameError: pass",
    "import contextlib\nwith contextlib.suppress(NameError): missing",
    "import contextlib\nwith open('x', 'w'), contextlib.suppress(NameError): missing",
    _QUIET + "open = lambda *_: Quiet()\nwith open('x'): missing",
    (_QUIET + "open = lambda *_: Quiet()", "with open('x'): missing"),
    (_QUIET + "def g():\n    global open\n    open = lambda *_: Quiet()", "g()\nwith open('x'): missing"),
    "if False: missing",
    "False and missing",
    "True or missing",
    "1 if True else missing",
    "1 < 0 < missing",
    "for i in []: missing",
    "while False: missing",
    "[missing for i in []]",
    "[i for i in [] if missing]",
    "(missing for i in [1])",
    "lambda: missing",
    "def g(): missing",
    "def g(a: int = 1): missing\ng",
    "async def g(): missing",
    "class A:\n    def m(self): return missing",
    "class A:\n    x = 1\n    y = x",
    "assert True, missing",
    "match 1:\n    case 2: missing",
    "match 1:\n    case 2 if missing: pass",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING: missing",
    "from __future__ import annotations\ndef g(a: missing) -> missing: pass",
    "from __future__ import annotations\nx: missing = 1",
    "import sys\nsys.exit()\nmissing",
    "exit()\nmissing",
    "raise SystemExit\nmissing",
    "if True: raise SystemExit(0)\nmissing",
    ("def stop(): raise SystemExit", "stop()\nmissing"),
    ("import sys as s", "s.exit(0)\nmissing"),
    ("from sys import exit as stop", "stop()\nmissing"),
    "try: missing\nfinally: exit()",
    "import argparse\nargparse.ArgumentParser().parse_args(['-h'])\nmissing",
    "__name__, __doc__, __builtins__",
    ("1", "_"),
    "print, len, display, show",
    (_F, "f = lambda: 1\nf()"),
    (_F, "for f in [lambda: 1]: f()"),
    (_F, "f(*(1, 2), d=1)"),
    (_F, "f(1, 2, **{'d': 1})"),
    (_F, "f(1, d=1, b=2)"),
    (_F, "f(1, 2, 3, d=1, e=1)"),
    (_F, "try: f()\nexcept TypeError: pass"),
    (_F, "False and f()"),
    (_F, "g = lambda: f()"),
    (_F, "def h(): return 1\nf.__code__ = h.__code__\nf()"),
    (_F, "f.__defaults__, f.__kwdefaults__ = (1, 2, 3), {'d': 1, 'e': 2}\nf()"),
    (_F, "def h():\n    global f\n    f = lambda: 1\nh()\nf()"),
    (_F, "import __main__\n__main__.f = lambda: 1\nf()"),
    (_WRAPS + "@deco\ndef f(a): pass", "f()"),
    ("import functools\nf = functools.partial(lambda a, b: 1, 1)", "f(2)"),
    ("import inspect\ndef f(a=1): pass\nf.__signature__ = inspect.Signature()", "f(2)"),
    ("def f(*args, **kwargs): pass", "f(1, 2, a=3)"),
    ("def f(a, /, **kwargs): pass", "f(1, a=2)"),
    ("class C:\n    def m(self, a): pass\nc = C()", "c.m = lambda: 1\nc.m()"),
    ("class C:\n    def m(self, a): pass\nc = C()", "C.m = lambda s: 1\nc.m()"),
    ("class C:\n    def m(self, a): pass\nclass D:\n    def m(self): pass\nc = C()", "c.__class__ = D\nc.m()"),
    ("class C:\n    def m(self, a): pass\n    def __getattribute__(self, name): return lambda: 1\nc = C()", "c.m()"),
    ("class C:\n    def __getattr__(self, name): return lambda: 1\nc = C()", "c.m()"),
    ("class C:\n    def m(self, a): pass\n    def change(self): self.m = lambda: 1\nc = C()", "c.change()\nc.m()"),
    ("class C:\n    @property\n    def m(self): return lambda: 1\nc = C()", "c.m()"),
    ("class C:\n    def m(self, a): pass\nc = C()\nc.m = lambda: 1", "c.m()"),
    ("class C: pass\nc = C()\nc.m = lambda: 1", "c.m()"),
]  # fmt: skip
"""Cells that succeed, though names or arguments look wrong."""


@pytest.mark.parametrize("code", RUNS, ids=lambda code: json.dumps(code)[:120])
def test_a_cell_that_may_succeed_is_not_refused(cells, code):
    code = (code,) if isinstance(code, str) else code
    assert cells.run(*code, checking=False).success, "without the check it succeeds"
    ran = cells.run(*code)
    assert not ran.is_refused
    assert ran.success


# -- any cell --

_NAMES = st.sampled_from(["a", "b", "f", "g", "m", "print", "len"])
_ATOMS = st.one_of(_NAMES, st.sampled_from(["1", "'x'", "[]", "a.real", "m.pi", "globals()", "locals()"]))
_EXPRESSIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("[{} for {} in [{}]]".format, inner, _NAMES, inner),
        st.builds("f('{{}}'.format({}))".format, inner),
        st.builds("({} := {})".format, st.sampled_from("abfg"), inner),
        st.builds("(lambda {}: {})".format, st.sampled_from("abfg"), inner),
        st.builds("f({})".format, inner),
        st.builds("f({}, b={})".format, inner, inner),
        st.builds("g()".format),
        st.builds("str({})".format, inner),
        st.builds("exec('{} = 1')".format, st.sampled_from("abfg")),
    ),
    max_leaves=4,
)
_SIMPLE = st.one_of(
    _EXPRESSIONS,
    st.builds("{} = {}".format, _NAMES, _EXPRESSIONS),
    st.builds("del {}".format, st.sampled_from("abfg")),
    st.builds("import math as {}".format, st.sampled_from("am")),
    st.sampled_from(["from math import *", "pass", "raise SystemExit", "globals()['a'] = 1"]),
)


def _indented(block):
    return "\n".join(f"    {line}" for line in block.split("\n"))


def _compound(inner):
    block = st.lists(inner, min_size=1, max_size=2).map("\n".join).map(_indented)
    return st.one_of(
        st.builds("if {}:\n{}".format, _EXPRESSIONS, block),
        st.builds("for {} in [{}]:\n{}".format, _NAMES, _EXPRESSIONS, block),
        st.builds("try:\n{}\nexcept {} as a:\n{}".format, block, st.sampled_from(["NameError", "TypeError"]), block),
        st.builds("try:\n{}\nfinally:\n{}".format, block, block),
        st.builds("def {}({}):\n{}".format, st.sampled_from("fg"), st.sampled_from(["", "a", "a, b=1"]), block),
        st.builds("def g():\n    global {}\n{}".format, st.sampled_from("abf"), block),
        st.builds("class {}:\n{}".format, st.sampled_from("ab"), block),
        st.builds("with open('x', 'w') as {}:\n{}".format, _NAMES, block),
        st.builds("import contextlib\nwith contextlib.suppress(Exception):\n{}".format, block),
        st.builds("match {}:\n    case {}:\n{}".format, _EXPRESSIONS, st.sampled_from(["a", "[a, *b]", "_"]),
                  block.map(_indented)),
    )  # fmt: skip


_STATEMENTS = st.recursive(_SIMPLE, _compound, max_leaves=3)
_CELLS = st.lists(_STATEMENTS, min_size=1, max_size=4).map("\n".join)


@pytest.mark.slow
def test_whatever_is_refused_fails_without_the_check(cells):
    """If something else fails first, that is an error, too, and precedes the refused line."""
    refused = []

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(before=_CELLS, code=_CELLS)
    def check(before, code):
        checked = cells.run(before, code)
        if checked.is_refused:
            refused.append(code)
            ran = cells.run(before, code, checking=False)
            assert not ran.success
            assert ran.line <= checked.line
            if (ran.line, ran.column) == (checked.line, checked.column):
                assert _error(checked) == _error(ran)

    check()
    assert refused, "some are"
