"""The shape of the source tree: problems that would break imports, or excessive sizes, fail here."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "platform": "cenote",
    "workers": "cenote_worker",
    "security": "cenote_security",
    "protos": "cenote_proto",
}
VAGUE = {"utils", "util", "helpers", "common", "misc", "manager"}


def tracked(*patterns: str) -> list[Path]:
    output = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [path for line in output.splitlines() if (path := ROOT / line).exists()]


SOURCES = [
    path
    for root in PACKAGES
    for path in tracked(f"{root}/**.py")
    if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
]


@pytest.mark.parametrize(("root", "package"), PACKAGES.items())
def test_a_source_root_holds_one_package_and_no_module(root: str, package: str) -> None:
    """A module beside a package would be importable by its bare name, and could hide another."""
    found = {path.relative_to(ROOT / root).parts[0] for path in tracked(root) if path.suffix != ".md"}
    assert {package} == found


def test_tests_are_not_packages() -> None:
    """An `__init__.py` under tests would make `tests/platform` a second `platform`."""
    assert [] == tracked("tests/**/__init__.py", "tests/__init__.py")


def test_files_stay_small() -> None:
    """No source file has more than 600 lines; most have fewer than half of that."""
    assert {} == {str(path): lines for path in SOURCES if (lines := len(path.read_text().splitlines())) > 600}


def test_files_are_named_for_a_noun() -> None:
    """A file with a subject is named for it; a collection is not."""
    assert [] == [path for path in SOURCES if path.stem in VAGUE]


def test_every_package_has_an_init() -> None:
    """A folder of sources without `__init__.py` would silently become a namespace package."""
    folders = {path.parent for path in SOURCES}
    assert set() == {folder for folder in folders if not (folder / "__init__.py").exists()}


def test_packages_are_typed() -> None:
    """Users' type checkers read our types."""
    written = {root: package for root, package in PACKAGES.items() if root != "protos"}
    assert all((ROOT / root / package / "py.typed").exists() for root, package in written.items())


def test_test_files_have_unique_names() -> None:
    """Two test files with one name hide each other in reports."""
    names = [path.name for path in tracked("tests/**test_*.py")]
    assert [] == sorted({name for name in names if names.count(name) > 1})


def test_a_class_frees_nothing_in_del() -> None:
    """Lifetimes are in `with`; `__del__` runs when and where the collector decides."""
    assert [] == [str(path.relative_to(ROOT)) for path in SOURCES if "__del__" in functions(path)]


def functions(path: Path) -> set[str]:
    """Their names, if the file contains `__del__`."""
    if "__del__" not in path.read_text():
        return set()
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
