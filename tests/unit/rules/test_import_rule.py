"""ImportRule: a module is forbidden in every form of access."""

from __future__ import annotations

import pytest

from cenote_security.rules import AllowedImportsRule, ImportRule, SecurityChecker, SecurityRule


def reasons(code: str, *rules: SecurityRule) -> list[str]:
    return [violation.reason for violation in SecurityChecker(rules).check_code(code)]


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import os as o",
        "import os.path",
        "import json, os",
        "from os import path",
        "from os.path import join",
        "from os import *",
        "import posix",
        "__import__('os')",
        "__import__('o' + 's')",
        "__import__(chr(111) + chr(115))",
        "import importlib\nimportlib.import_module('os')",
        "from importlib import import_module as load\nload('so'[::-1])",
        "import sys\nsys.modules['os']",
        "import random\nrandom._os",
        "import shutil\nshutil.os.getcwd()",
        "from shutil import os",
        "exec('import os')",
        "import pkgutil\npkgutil.resolve_name('os:getcwd')",
    ],
)
def test_every_road_to_a_module_is_seen(code: str) -> None:
    """Statements, functions that import, sys.modules, and modules that imported it."""
    (reason,) = reasons(code, ImportRule({"os"}))
    assert reason in (
        "module os is not allowed here",
        "module os.path is not allowed here",
        "module posix is not allowed here",
    )


@pytest.mark.parametrize(
    "code",
    [
        "import json",
        "import ossaudiodev as x",
        "from . import os",
        "df.os.mean()",
        "record['os']",
        "os = 'linux'\nos.upper()",
        "import numpy as np\nnp.linalg.norm(x)",
    ],
)
def test_other_things_of_that_name_are_none(code: str) -> None:
    """A name, a column or a key called `os` is not the module."""
    assert reasons(code, ImportRule({"os"})) == []


def test_submodules_that_packages_name_after_the_standard_library() -> None:
    """`scipy.signal` and `numpy.random` are not the standard library's modules."""
    code = "import scipy.signal\nimport numpy as np, pyarrow as pa\nnp.random.rand(3), pa.csv, scipy.signal.welch"
    assert reasons(code, ImportRule({"signal", "random", "csv"})) == []


def test_a_rule_for_a_submodule_leaves_its_package_alone() -> None:
    """`http.server` is not `http.client`; access through the package counts."""
    rule = ImportRule({"http.server"})
    assert reasons("import http.client", rule) == []
    assert reasons("import http\nhttp.server", rule) == ["module http.server is not allowed here"]
    assert reasons("from http import server", rule) == ["module http.server is not allowed here"]


def test_a_module_that_cannot_be_told_is_refused_unless_allowed() -> None:
    """A computed name could be any module; `dynamic=True` allows it."""
    code = "def load(name):\n    return __import__(name)"
    assert reasons(code, ImportRule({"os"})) == ["which module is imported cannot be told from the code"]
    assert reasons(code, ImportRule({"os"}, dynamic=True)) == []


def test_names_in_a_literal_list_can_be_told() -> None:
    """A loop over literal names imports those, and only those."""
    code = "import importlib\nfor name in ['json', 'math']:\n    importlib.import_module(name)"
    assert reasons(code, ImportRule({"os"})) == []
    assert reasons(code, ImportRule({"math"})) == ["module math is not allowed here"]


def test_a_single_name_is_one_module() -> None:
    """A string is one name, not a set of letters."""
    assert ImportRule("os").forbidden_modules == {"os"}


def test_allowed_imports_refuse_all_others() -> None:
    """A list of allowed modules needs no list of forbidden ones."""
    rule = AllowedImportsRule({"numpy", "concurrent.futures"})
    assert reasons("import numpy.linalg\nfrom concurrent.futures import wait", rule) == []
    assert reasons("import antigravity", rule) == [
        "module antigravity is not among those that are allowed here"
    ]
    assert reasons("import numpy\nnumpy.os", rule) == ["module os is not among those that are allowed here"]
    private = ["module numpy._core.umath is private to its library"]
    assert reasons("import numpy._core.umath", rule) == private
    assert reasons("import numpy._core.umath", AllowedImportsRule({"numpy", "numpy._core"})) == []


def test_a_star_import_brings_submodules() -> None:
    """A name that a star may have bound may be the module."""
    rule = ImportRule({"numpy.f2py"})
    assert reasons("from numpy import *\nf2py.compile(x)", rule) == ["module numpy.f2py is not allowed here"]
    assert reasons("from numpy import *\nlinalg.norm(x)", rule) == []
