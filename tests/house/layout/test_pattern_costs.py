"""Every regular expression takes time in proportion to what it reads, that of a hostile author included.

A search that begins anew at each character of what it has just read takes n² steps: 20,000 newlines of a model, or of
a jail, hold up an event loop for seconds.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

_constants: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")

ROOT = Path(__file__).resolve().parents[3]
METHODS = frozenset({"search", "match", "fullmatch", "finditer", "findall", "sub", "split"})
UNITS = ["\n", " ", "`", "<", "{", '"', "#", ">", "a", "1", "\t", "'", "\\", "-", "a ", "\r\n", "a\n", " \n", "<a",
         "```\n", "/", "=", ".", ",", "("]  # fmt: skip
TRIED_FOR_A_CLASS = "a1 \n<`{\"#>-_.A/=:+~\t'\\é"
CATEGORIES = {
    _constants.CATEGORY_DIGIT: r"\d",
    _constants.CATEGORY_NOT_DIGIT: r"\D",
    _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S",
    _constants.CATEGORY_WORD: r"\w",
    _constants.CATEGORY_NOT_WORD: r"\W",
}
REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)

SIZES = [20, 40, 640, 2560]
"""Repetitions. The first two tell exponential patterns, which would not end for the others."""

NOTICEABLE = 0.002
"""Seconds of CPU: twenty times what a linear pattern takes for the longest input."""

FOUR_TIMES_AS_MUCH = 9
"""What n² takes sixteen times for four times the input; n takes four."""


def least(item: tuple[Any, Any]) -> str:
    """A short text that one part of a pattern matches."""
    kind, value = item
    if kind is _constants.LITERAL:
        return chr(value)
    if kind is _constants.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if kind is _constants.ANY:
        return "a"
    if kind is _constants.IN:
        return member(value)
    if kind in REPEATS:
        return text_of(value[2]) * int(value[0])
    if kind is _constants.SUBPATTERN:
        return text_of(value[3])
    if kind is _constants.BRANCH:
        return text_of(value[1][0])
    return text_of(value) if kind is _constants.ATOMIC_GROUP else ""


def member(items: Sequence[tuple[Any, Any]]) -> str:
    """A character of a class."""
    excludes = any(kind is _constants.NEGATE for kind, _ in items)
    for character in TRIED_FOR_A_CLASS:
        if any(is_in(character, *item) for item in items) != excludes:
            return character
    kind, value = items[0]
    return chr(value[0]) if kind is _constants.RANGE else chr(value)


def is_in(character: str, kind: Any, value: Any) -> bool:
    if kind is _constants.LITERAL:
        return bool(ord(character) == value)
    if kind is _constants.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    return kind is _constants.CATEGORY and re.match(CATEGORIES[value], character) is not None


def text_of(items: Any) -> str:
    return "".join(map(least, items))


def repeated(items: Sequence[tuple[Any, Any]], before: str = "") -> Iterator[tuple[str, str]]:
    """What a pattern may repeat without a near bound, and what leads there."""
    for index, (kind, value) in enumerate(items):
        start = before + text_of(items[:index])
        if kind in REPEATS:
            if value[1] > 100 and (unit := text_of(value[2])):
                yield start, unit
            yield from repeated(list(value[2]), start)
        elif kind is _constants.SUBPATTERN:
            yield from repeated(list(value[3]), start)
        elif kind is _constants.BRANCH:
            for branch in value[1]:
                yield from repeated(list(branch), start)
        elif kind is _constants.ATOMIC_GROUP:
            yield from repeated(list(value), start)
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from repeated(list(value[1]), start)


def literals(items: Any) -> Iterator[str]:
    """The marks that a pattern looks for."""
    run = ""
    for kind, value in items:
        if kind is _constants.LITERAL:
            run += chr(value)
            continue
        yield from [run] if run else []
        run = ""
        parts = [value[2]] if kind in REPEATS else [value[3]] if kind is _constants.SUBPATTERN else []
        for part in value[1] if kind is _constants.BRANCH else parts:
            yield from literals(part)
    yield from [run] if run else []


def inputs(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Beginnings, and what is repeated behind them."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    parsed = list(_parser.parse(source, pattern.flags & ~re.UNICODE & ~re.DEBUG))
    whole = text_of(parsed)
    tried = [("", unit) for unit in [*UNITS, *dict.fromkeys(literals(parsed)), whole] if unit]
    for start, unit in repeated(parsed):
        tried += [(start, unit), ("", start + unit), (whole, unit), *((start, each) for each in " a\n")]
        tried += [("", start)] if start else []
    return list(dict.fromkeys(tried))


AGAIN = 3
"""Times that an excess is looked at again."""


def seconds(run: Callable[[Any], object], text: str | bytes) -> float:
    """The least of three runs, or one that is short."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run(text)
        best = min(best, time.process_time() - start)
        if best < NOTICEABLE or best > 1:
            break
    return best


def is_excess(count: int, former: float, took: float) -> bool:
    return took > NOTICEABLE and (count <= 40 or took > FOUR_TIMES_AS_MUCH * former)


def costly(pattern: re.Pattern[Any], method: str) -> Iterator[str]:
    """Inputs for which four times as much takes far more than four times as long."""
    is_bytes = isinstance(pattern.pattern, bytes)
    run = getattr(pattern, method)
    if method == "finditer":
        run = lambda text: sum(1 for _ in pattern.finditer(text))  # noqa: E731
    elif method == "sub":
        run = lambda text: pattern.sub(pattern.pattern[:0], text)  # noqa: E731
    for start, unit in inputs(pattern):
        for end in ("", "\n\0"):
            took, text = 0.0, pattern.pattern[:0]
            for count in SIZES:
                shorter, written = text, start + unit * max(count // len(unit), 1) + end
                text = written.encode("latin-1", "replace") if is_bytes else written
                former, took = took, seconds(run, text)
                for _ in range(AGAIN):  # a busy machine makes one look longer, hardly each of them
                    if is_excess(count, former, took):
                        former, took = seconds(run, shorter), seconds(run, text)
                if is_excess(count, former, took):
                    yield f"{method} of {start!r}, then {unit!r} {count} times, then {end!r}: {took:.3f} s"
                    break


def patterns_of(path: Path) -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Name, pattern and method, of what a module has at its top and what it writes in a call of `re`."""
    tree = ast.parse(path.read_text())
    called: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            called.setdefault(node.value.id, set()).add(node.attr)
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("re"), attr=method),
                args=[ast.Constant(str() | bytes() as source), *_],
            ) if method in METHODS:
                flags = [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
                combined = sum(getattr(re, each) for each in set(flags) if each.isupper())
                yield f"line {node.lineno}", re.compile(source, combined), method
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts[1:]))
    for name, value in vars(module).items():
        bound = getattr(value, "__self__", None)
        if isinstance(bound, re.Pattern):
            yield name, bound, value.__name__
        values = (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, list | tuple)
            else [value]
        )
        for each in values:
            if isinstance(each, re.Pattern):
                yield from ((name, each, method) for method in sorted(called.get(name, {"search"})))


MODULES = [
    str(path.relative_to(ROOT))
    for part in ("platform", "workers", "security")
    for path in sorted((ROOT / part).rglob("*.py"))
    if re.search(r"^\s*import re$", path.read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def patterns() -> dict[str, list[tuple[str, re.Pattern[Any], str]]]:
    """By module. Read in a process of its own: some modules are made for the inside of a jail."""
    done = subprocess.run(
        [sys.executable, __file__], stdout=subprocess.PIPE, check=True, cwd=ROOT, timeout=120
    )
    found: dict[str, list[tuple[str, re.Pattern[Any], str]]] = {}
    for path, name, method, flags, is_bytes, source in map(json.loads, done.stdout.splitlines()):
        pattern: re.Pattern[Any] = re.compile(source.encode("latin-1") if is_bytes else source, flags)
        found.setdefault(path, []).append((name, pattern, method))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES)
def test_four_times_the_text_takes_about_four_times_as_long(
    path: str, patterns: dict[str, list[tuple[str, re.Pattern[Any], str]]]
) -> None:
    """For repetitions of common marks, of the pattern's own, and of whatever it repeats."""
    found = patterns.get(path, [])
    assert [] == [
        f"{name}: {reason}" for name, pattern, method in found for reason in costly(pattern, method)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"(?:\s*(?:</s>|<eos>))+\s*\Z", "sub"),
        (r"\s*x", "search"),
        (r"<a>.*?</a>", "finditer"),
        (r"a\s*b?\s*c", "fullmatch"),
        (r"(a+)+b", "match"),
        (r"(\w*)x(\w*)y", "match"),
    ],
)
def test_a_pattern_that_takes_more_is_found(source: str, method: str) -> None:
    """n², n³ and 2ⁿ."""
    assert next(costly(re.compile(source), method), None)


if __name__ == "__main__":
    for each in MODULES:
        for label, compiled, way in patterns_of(ROOT / each):
            binary = isinstance(compiled.pattern, bytes)
            written = compiled.pattern.decode("latin-1") if binary else compiled.pattern
            print(json.dumps([each, label, way, compiled.flags & ~re.UNICODE, binary, written]))
