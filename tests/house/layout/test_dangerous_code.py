"""Code that runs other code is only in files with a name that says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = {"_pickle", "ctypes", "dill", "marshal", "pickle", "shelve", "subprocess"}
CALLS = {"eval", "exec", "os.popen", "os.system", "cloudpickle.load", "cloudpickle.loads"}
SOURCES = [
    path
    for root in ("platform", "workers", "security")
    for path in sorted((ROOT / root).rglob("*.py"))
    if not path.name.endswith("_unsafe.py")
]


def dangers(source: str) -> list[str]:
    """Line and name of each import and call that needs a file named `*_unsafe.py`."""
    return [f"{line}: {name}" for line, name in _names(ast.parse(source)) if name in MODULES | CALLS]


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module.partition(".")[0]
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.lineno, ast.unparse(node.func)


@pytest.mark.slow
def test_dangerous_code_is_named_unsafe() -> None:
    """exec, eval, pickle, subprocess and ctypes are only in files named `*_unsafe.py`."""
    found = {path: dangers(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {} == {str(path.relative_to(ROOT)): names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import ctypes.util", ["1: ctypes"]),
        ("from subprocess import run", ["1: subprocess"]),
        ("def f():\n    import pickle as p", ["2: pickle"]),
        ("exec('1')", ["1: exec"]),
        ("from cloudpickle import loads", ["1: cloudpickle.loads"]),
        ("import cloudpickle\ncloudpickle.loads(b'')", ["2: cloudpickle.loads"]),
        ("import cloudpickle\ncloudpickle.dumps(1)", []),
        ("frame.eval('a + b'); re.compile('x')", []),
    ],
)
def test_the_rule_sees_each_form(source: str, found: list[str]) -> None:
    """The rule sees plain, aliased, nested and from-imports, and leaves methods of the same name alone."""
    assert found == dangers(source)
