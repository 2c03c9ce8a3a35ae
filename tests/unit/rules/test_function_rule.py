"""FunctionRule: functions by name, under any alias, and never a method with the same name."""

from __future__ import annotations

import sys

import pytest

from cenote_security.rules import FunctionRule, SecurityChecker, strict_rules


def reasons(code: str, *names: str) -> list[str]:
    return [violation.reason for violation in SecurityChecker([FunctionRule(names)]).check_code(code)]


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "list(map(eval, ['1']))",
        "f'{eval(1)}'",
        "@eval\ndef f(): pass",
        "def f(run=eval): pass",
        "lambda run=eval: run(1)",
        "__builtins__['eval'](1)",
        "globals()['eval'](1)",
        "import builtins\nvars(builtins)['ev' + 'al'](1)",
        "import builtins as b\ngetattr(b, 'eval')(1)",
        "print.__self__.eval(1)",
        "from builtins import *\nx = eval",
    ],
)
def test_a_builtin_is_seen_where_it_is_named(code: str) -> None:
    """Passing a function on to be called counts as calling it."""
    assert set(reasons(code, "eval")) == {"function eval is not allowed here"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
@pytest.mark.parametrize(
    "code",
    [
        "type X = m.system('ls')\nimport os as m",
        "def f[T: m.system('ls')](): pass\nimport os as m",
        "class A[*T, U: (int, m.system('ls'))]: pass\nimport os as m",
        "class A:\n  type X = m.system('ls')\nimport os as m",
        pytest.param(
            "def f[**P = m.system('ls')](): pass\nimport os as m",
            marks=pytest.mark.skipif(sys.version_info < (3, 13), reason="syntax of 3.13"),
        ),
    ],
)
def test_what_is_evaluated_on_demand_may_use_names_bound_behind_it(code: str) -> None:
    assert reasons(code, "os.system") == ["function os.system is not allowed here"]


@pytest.mark.parametrize(
    "code",
    [
        "df.eval('a + b')",
        "import re\nre.compile('x')",
        "door.open()",
        "import gzip\ngzip.open('x')",
        "model.compile(optimizer='adam')",
        "def open(door): return door\nopen(1)",
        "class open: pass\nopen()",
        "from door import open\nopen(1)",
        "import door as open\nopen(1)",
        "for open in doors:\n    open.close()\n    open(1)",
        "if x:\n    open = door\n    open(1)",
        "with door as open:\n    open(1)",
        "while x:\n    open, eval = 1, 2\n    print(open, eval)",
        "try:\n    pass\nexcept E as open:\n    print(open)",
        "match x:\n    case [open]:\n        open(1)",
        "if (open := door):\n    open(1)",
        "x and (open := door) and open(1)",
        "def f(open, *, eval=None): return open(eval)",
        "[compile(1) for compile in functions]",
        "lambda eval: eval(1)",
        "x.open = 1\nx.open()",
        "df.query('open > eval')",
    ],
)
def test_methods_and_own_functions_of_that_name_are_fine(code: str) -> None:
    """The name of a builtin in a rule means that builtin only."""
    assert reasons(code, "eval", "open", "compile") == []


@pytest.mark.parametrize(
    "code",
    [
        "if False:\n    eval = 1\neval('1')",
        "for eval in []:\n    pass\neval('1')",
        "def eval(x): pass\ndel eval\neval('1')",
        "eval: int\neval('1')",
        "try:\n    eval = 1\nexcept E:\n    pass\neval('1')",
        "with quiet:\n    eval = 1\neval('1')",
        "def f():\n    return eval('1')\nf()\neval = None",
        "def f():\n    global eval\n    eval = 1\neval('1')",
        "class A:\n    eval = len\neval('1')",
        "[eval for eval in x]\neval('1')",
        "while wait():\n    eval = 1\neval('1')",
        "match x:\n    case [eval]:\n        pass\neval('1')",
    ],
)
def test_a_shadow_that_may_not_be_there_hides_nothing(code: str) -> None:
    """Only a binding that certainly happened hides a builtin."""
    assert "function eval is not allowed here" in reasons(code, "eval")


def test_classes_count_when_they_are_called() -> None:
    """`type` is named in every other type check; the rule concerns calls."""
    assert reasons("isinstance(x, type)\ndf.astype(object)", "type", "object") == []
    assert reasons("type('A', (), {})", "type") == ["function type is not allowed here"]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.system('id')",
        "import os as o\no.system('id')",
        "from os import system as s\ns('id')",
        "import os\nrun = os.system\n",
        "import os\ngetattr(os, 'sys' + 'tem')('id')",
        "import os\nvars(os)['system']('id')",
        "import os\nos.__dict__['system']('id')",
        "import shutil\nshutil.os.system('id')",
        "import posix\nposix.system('id')",
        "import os\ntools = [os]\ntools[0].system('id')",
        "import os\nclass A:\n    o = os\nA.o.system('id')",
        "import os\nclass A:\n    def f(self):\n        self.o = os\n    def g(self):\n        self.o.system(1)",
        "import os\no = None\nfor i in range(2):\n    o and o.system(1)\n    o = os",
        "import os\n(lambda m: m.system)(os)",
        "import os\ndef f(m):\n    m.system('id')\nf(os)",
        "def f():\n    import os\n    return os\nf().system('id')",
        "import os\nmatch os:\n    case object(system=s):\n        s('id')",
        "import operator, os\noperator.attrgetter('system')(os)('id')",
        "from os import *\nsystem('id')",
        "os.system('id')",
    ],
)
def test_dotted_functions_are_followed_through_the_module(code: str) -> None:
    """A module may be renamed, stored, passed and returned: its function stays the same."""
    assert set(reasons(code, "os.system")) == {"function os.system is not allowed here"}


def test_functions_exported_again_deeper_in_a_package() -> None:
    """`pandas.read_pickle` is in pandas.io.pickle; a method of that name is something else."""
    assert reasons("import pandas\npandas.io.pickle.read_pickle('x')", "pandas.read_pickle") != []
    assert reasons("import pandas\npandas.DataFrame(x).eval('a')", "pandas.eval") == []


def test_methods_of_a_named_class() -> None:
    """A dotted name may end in a method: a class's call returns an instance of it."""
    code = "from pathlib import Path\nPath('x').unlink()"
    assert reasons(code, "pathlib.Path.unlink") == ["function pathlib.Path().unlink is not allowed here"]


def test_other_bare_names_mean_any_function_or_method() -> None:
    """A name that is not a builtin is any function of that name: injected, imported, or a method."""
    for code in (
        "transfer(1)",
        "bank.transfer(1)",
        "from bank import transfer",
        "import bank\nbank.transfer(1)",
    ):
        assert (
            reasons(code, "transfer") == ["function transfer is not allowed here"]
            or "bank.transfer" in reasons(code, "transfer")[0]
        )
    assert reasons("frame.transfer", "transfer") == []


def test_a_member_of_a_module_that_cannot_be_told() -> None:
    """`getattr(os, name)` could be the forbidden function; `getattr(x, name)` is ordinary."""
    assert reasons("import os\ngetattr(os, name)()", "os.system") != []
    assert reasons("getattr(x, name)()", "os.system", "eval") == []


def test_description_says_why() -> None:
    """The second argument is in the message."""
    (violation,) = SecurityChecker([FunctionRule({"print"}, "output is paid for")]).check_code("print(1)")
    assert violation.reason == "function print is not allowed here (output is paid for)"


def test_code_in_strings_is_read() -> None:
    """exec, eval, timeit and pandas expressions are read as code, up to three strings deep."""
    for code in (
        "exec('import os; os.system(1)')",
        "exec(b'import os; os.system(1)')",
        "exec('pass' if x else 'import os; os.system(1)')",
        "import timeit\ntimeit.timeit('import os; os.system(1)')",
        "exec('exec(\"import os; os.system(1)\")')",
        "import os\ndf.query('@os.system(1)')",
        "import pandas as pd\npd.eval('__import__(\"os\").system(1)')",
    ):
        assert reasons(code, "os.system") == ["function os.system is not allowed here"], code


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("import logging\nlogging.basicConfig(level=1)", False),
        ("import logging\nlogging.basicConfig(filename=None)", False),
        ("import logging\nlogging.basicConfig(**{'level': 1})", False),
        ("import logging\nlogging.basicConfig(filename='x')", True),
        ("from logging import basicConfig as b\nb(filename=path)", True),
        ("import logging\nlogging.basicConfig(**{'filename': 'x'})", True),
        ("import logging\nlogging.basicConfig(**options)", True),
        ("import logging, functools\nfunctools.partial(logging.basicConfig, filename='x')()", True),
    ],
)
def test_a_keyword_that_is_given(code: str, refused: bool) -> None:
    """With a keyword in the name, the function is refused only when that keyword is given."""
    assert refused == bool(reasons(code, "logging.basicConfig(filename)"))


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("model.load('x', trust=True)", True),
        ("from hub import Model\nModel.load('x', trust=True)", True),
        ("model.load('x', trust=False)", False),
        ("model.load('x')", False),
        ("load('x', trust=True)", False),
    ],
)
def test_a_keyword_of_a_method(code: str, refused: bool) -> None:
    """A bare name with a keyword is a method of any object."""
    assert refused == bool(reasons(code, "load(trust)"))


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("timeit.timeit(lambda: f(1))", False),
        ("timeit.timeit('f(1)', setup='from math import sqrt as f')", False),
        ("def f(): pass\ntimeit.repeat(f, number=3)", False),
        ("timeit.timeit()", False),
        ("import numpy as np\ntimeit.timeit(np.zeros)", False),
        ("timeit.timeit(text)", True),
        ("timeit.timeit('pass', setup=text)", True),
        ("timeit.timeit(f'{text}')", True),
        ("timeit.Timer(read()).timeit()", True),
        ("timeit.timeit(**options)", True),
    ],
)
def test_a_text_that_is_timed(code: str, refused: bool) -> None:
    """A literal text is read as code; any other text may be any code."""
    assert refused == bool(SecurityChecker(strict_rules()).check_code(f"import timeit\n{code}"))


def test_a_function_of_a_former_cell_is_no_text() -> None:
    """A session remembers that a name is a function."""
    session = SecurityChecker(strict_rules()).session()
    assert session.check_code("def f(): pass\ng = lambda: 1") == []
    session.succeeded()
    assert session.check_code("import timeit\ntimeit.timeit(f), timeit.timeit(g)") == []
    session.succeeded()
    assert session.check_code("f = g = read()") == []
    session.succeeded()
    assert session.check_code("timeit.timeit(f)") != []
