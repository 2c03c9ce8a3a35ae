"""How many bypasses the rules find, and how much ordinary code they stop: measured, with every exception named."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from cenote.security import (
    AttributeRule,
    FunctionRule,
    ImportRule,
    SecurityChecker,
    default_rules,
    strict_rules,
)

Load = Callable[[str], dict[str, str]]

PASSES_STRICT = {
    "array to any path",  # files through libraries: the jail decides which exist
    "exception holds an object",  # `.obj` is also a public attribute of a pandas GroupBy
    "figure to any path",
    "html through pandas",
    "path text through pandas",
}

STOPPED_BY_STRICT = {
    # no files
    "csv module",
    "glob",
    "list files",
    "paths",
    "pickle a model",
    "read json",
    "read lines with open",
    "shutil",
    "sqlite",
    "temporary files",
    "write json with open",
    "zip files",
    "joblib",
    # no processes, no network, nothing of the system
    "environment variable",
    "os functions by condition",
    "processes",
    "requests guarded",
    "subprocess",
    "sys",
    # no reflection
    "garbage",
    "globals check",
    "import check",
    "inspect a signature",
    "vars of an object",
    "versions of modules by name",
}


def stopped(rules: list[object], snippets: dict[str, str]) -> set[str]:
    checker = SecurityChecker(rules)  # type: ignore[arg-type]
    return {name for name, code in snippets.items() if checker.check_code(code)}


def test_the_sets_are_large_and_parse(corpus: Load) -> None:
    """At least 600 bypasses and 280 ordinary snippets, all of them Python."""
    for kind, least in (("bypasses", 600), ("ordinary", 280)):
        snippets = corpus(kind)
        assert len(snippets) >= least
        for code in snippets.values():
            ast.parse(code)


def test_strict_rules_stop_all_but_named_bypasses(corpus: Load) -> None:
    """The block rate is 99 % or more, and the exceptions are listed by name."""
    snippets = corpus("bypasses")
    passed = snippets.keys() - stopped(strict_rules(), snippets)
    assert passed == PASSES_STRICT
    rate = 1 - len(passed) / len(snippets)
    print(f"strict rules: {rate:.1%} of {len(snippets)} bypasses are stopped")
    assert rate >= 0.99


def test_default_rules_stop_no_ordinary_code(corpus: Load) -> None:
    """No false positive."""
    assert stopped(default_rules(), corpus("ordinary")) == set()


def test_strict_rules_stop_only_named_ordinary_code(corpus: Load) -> None:
    """Strict rules stop only files, processes and reflection."""
    assert stopped(strict_rules(), corpus("ordinary")) == STOPPED_BY_STRICT


def test_builtin_names_stop_no_methods(corpus: Load) -> None:
    """The names of builtins, as rules, stop calls of those builtins only: three snippets that read files."""
    names = {"eval", "exec", "open", "compile", "input", "__import__", "breakpoint"}
    found = stopped([FunctionRule(names)], corpus("ordinary"))
    assert found == {"csv module", "pickle a model", "read lines with open", "write json with open"}


@pytest.mark.parametrize(
    ("prefix", "rules"),
    [
        ("import", [ImportRule({"os", "subprocess"})]),
        ("dunder import", [ImportRule({"os"}), FunctionRule({"__import__"})]),
        ("eval", [FunctionRule({"eval", "exec"}), AttributeRule({"__globals__"})]),
        ("globals", [AttributeRule({"__globals__"})]),
    ],
)
def test_few_rules_see_through_every_disguise(corpus: Load, prefix: str, rules: list[object]) -> None:
    """One or two plain rules stop each disguise of the names they list."""
    mine = {name: code for name, code in corpus("bypasses").items() if name.startswith(prefix + " ")}
    assert len(mine) >= 15
    assert mine.keys() - stopped(rules, mine) <= {"import via reduce", "import the fork helper"}
