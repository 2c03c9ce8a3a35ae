"""Hints for a key, column or label that is not there.

What an expression of a failed frame refers to is found without running any of the user's code.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import ModuleType

from cenote_worker.jail.cells.source import CellCompiler
from cenote_worker.jail.errors.nearest import nearest
from cenote_worker.jail.errors.traceback_frames import ErrorFrame, characters, source_line
from cenote_worker.jail.rendering.bounded_text import bases, bounded_repr, bounded_str, module_name, type_name
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_LONGEST = 2_000
_LONGEST_CELL = 20_000
_UNKNOWN = object()
_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__


class FailedExpression:
    """The innermost expression that failed in one frame, as syntax, with the names that it could see."""

    def __init__(self, compiler: CellCompiler, step: ErrorFrame) -> None:
        self.tree = _parse(_source(compiler, step))
        self._cell = compiler.source(step.filename)
        self._open: set[str] = set()
        self._scopes: tuple[Mapping[str, object], ...] = (
            step.frame.f_locals,
            step.frame.f_globals,
            step.frame.f_builtins,
        )

    def called(self) -> object | None:
        """The function of a failed call, None when it is not a call or is unknown."""
        return self.resolve(self.tree.func) if isinstance(self.tree, ast.Call) else None

    def indexed(self) -> object | None:
        """The object that `[...]` was applied to in a failed subscription, None when something else failed."""
        return self.resolve(self.tree.value) if isinstance(self.tree, ast.Subscript) else None

    def values(self) -> Iterator[object]:
        """The values of the names and attributes in the expression, outermost first."""
        if self.tree is None:
            return
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                value = self.resolve(node)
                if value is not None:
                    yield value

    def resolve(self, node: ast.expr) -> object | None:
        found = self._resolve(node)
        return None if found is _UNKNOWN else found

    def _resolve(self, node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            found = next((scope[node.id] for scope in self._scopes if node.id in scope), _UNKNOWN)
            return self._element(node.id) if found is _UNKNOWN else found
        if isinstance(node, ast.Attribute):
            return _attribute(self._resolve(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return self._item(self._resolve(node.value), node.slice)
        return _UNKNOWN

    def _element(self, name: str) -> object:
        """A possible value of a comprehension's variable: the first element of the iterable.

        Since Python 3.12 a comprehension has no frame of its own, and its variables are gone when it fails.
        """
        if name in self._open:
            return _UNKNOWN
        self._open.add(name)
        for node in self._comprehensions:
            if isinstance(node.target, ast.Name) and node.target.id == name:
                values = self._resolve(node.iter)
                if isinstance(values, (list, tuple)) and type(values) in (list, tuple) and values:
                    return values[0]
        return _UNKNOWN

    @functools.cached_property
    def _comprehensions(self) -> list[ast.comprehension]:
        tree = _parse_cell(self._cell)
        nodes = ast.walk(tree) if tree is not None else ()
        return [node for node in nodes if isinstance(node, ast.comprehension)]

    def _item(self, container: object, index: ast.expr) -> object:
        key = index.value if isinstance(index, ast.Constant) else self._resolve(index)
        if type(container) is dict and type(key) in (str, int):
            return container.get(key, _UNKNOWN)
        if type(container) is list and type(key) is int and -len(container) <= key < len(container):
            return container[key]
        return _UNKNOWN


def _attribute(obj: object, name: str) -> object:
    """An attribute stored in a dictionary: of the instance, or of a class or module. Descriptors are not run."""
    if obj is _UNKNOWN:
        return _UNKNOWN
    if type(obj) is ModuleType:
        return vars(obj).get(name, _UNKNOWN)
    try:
        attributes = _get(obj, "__dict__")
    except Exception:
        attributes = {}
    if type(attributes) is dict and name in attributes:
        return attributes[name]
    owner = obj if type in bases(type(obj)) else type(obj)
    for cls in bases(owner):  # type: ignore[arg-type]
        if name in _class_dict(cls):
            return _class_dict(cls)[name]
    return _UNKNOWN


def _source(compiler: CellCompiler, step: ErrorFrame) -> str:
    position = step.position
    if position is None or position.end_line - position.line > 50:
        return ""
    lines = [
        source_line(compiler, step.filename, number) for number in range(position.line, position.end_line + 1)
    ]
    lines[-1] = lines[-1][: characters(lines[-1], position.end_column)]
    lines[0] = lines[0][characters(lines[0], position.column) :]
    return "\n".join(lines)


def _parse_cell(source: str) -> ast.AST | None:
    if not 0 < len(source) <= _LONGEST_CELL:
        return None
    try:
        tree: ast.AST = compile(source, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree


def _parse(source: str) -> ast.expr | None:
    if not source or len(source) > _LONGEST:
        return None
    try:
        tree = compile(
            f"({source})", "<expression>", "eval", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree.body if isinstance(tree, ast.Expression) else None


_FEW = 12
"""Up to this many keys are all listed; of more, only those that resemble the missing one."""

_MOST_KEYS = 5_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_LABELLED = ("loc", "at", "xs", "reindex")
_HOLDERS = ("self", "obj", "df", "frame", "data", "left")
_args_of = BaseException.__dict__["args"].__get__
_modules = sys.modules


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """Keys that could have been meant. kind: `columns`, `keys` or `labels`."""

    kind: str
    keys: list[object]
    count: int


def key_hint(error: BaseException, steps: list[ErrorFrame], compiler: CellCompiler) -> str:
    """Keys like the missing one, or all of them when there are few; empty when nothing is known."""
    asked = _asked(error)
    keys = next(_candidates(steps, compiler), None) if asked else None
    if keys is None:
        return ""
    if not keys.count:
        return f"there are no {keys.kind}"
    if keys.count <= _FEW:
        return f"{keys.kind}: {_listed(keys.keys)}"
    if alike := _alike(asked, keys):
        return f"nearest {keys.kind}: {_listed(alike)}"
    return f"{keys.count:,} {keys.kind}, such as {_listed(keys.keys[:3])}"


def _asked(error: BaseException) -> list[object]:
    """The missing keys: the argument itself, or those quoted in pandas' `"['a', 'b'] not in index"`."""
    arguments = _args_of(error)
    if not arguments:
        return []
    first = arguments[0]
    if type(first) is str and "[" in first and (" in " in first or " axis" in first):
        return [match[1] or match[2] for match in _QUOTED.finditer(first[:1000])]
    return [first]


def _candidates(steps: list[ErrorFrame], compiler: CellCompiler) -> Iterator[_Keys]:
    """Objects with keys, the likeliest first: the indexed one, then those in the frame of a library's caller."""
    users = [step for step in steps if step.owner != "library"]
    failed = FailedExpression(compiler, users[-1]) if users else None
    by_label = failed is not None and failed.tree is not None and _asks_for_labels(failed.tree)
    values: list[object] = []
    if failed is not None and (indexed := failed.indexed()) is not None:
        values.append(indexed)
    values += _library_holders(steps)
    if failed is not None:
        values += islice(failed.values(), 20)
    for value in values:
        if (keys := _keys_of(value, by_label=by_label)) is not None:
            yield keys


def _asks_for_labels(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _LABELLED for node in ast.walk(tree))


def _library_holders(steps: list[ErrorFrame]) -> Iterator[object]:
    for step in reversed(steps):
        if step.owner == "library":
            scope = step.frame.f_locals
            yield from (scope[name] for name in _HOLDERS if _is_pandas(scope.get(name)))


def _is_pandas(value: object) -> bool:
    pandas = _modules.get("pandas")
    return pandas is not None and type(value) in (pandas.DataFrame, pandas.Series)


def _keys_of(value: object, *, by_label: bool) -> _Keys | None:
    if dict in bases(type(value)):
        return _first("keys", dict.__iter__(value), dict.__len__(value))  # type: ignore[arg-type]
    if not _is_pandas(value):
        return None
    is_frame = type_name(type(value)) == "DataFrame"
    axis = value.columns if is_frame and not by_label else value.index  # type: ignore[attr-defined]
    return _first("columns" if is_frame and not by_label else "labels", axis, len(axis))


def _first(kind: str, keys: Iterable[object], count: int) -> _Keys:
    return _Keys(kind=kind, keys=list(islice(keys, _MOST_KEYS)), count=count)


def _alike(asked: list[object], keys: _Keys) -> list[object]:
    """Keys that read like the missing ones, whatever their types: the number 1 for the text "1" too."""
    texts = {_text(key): key for key in keys.keys}
    found: list[object] = []
    for key in asked[:5]:
        if (text := _text(key)) in texts:
            found.append(texts[text])
        found += [texts[word] for word in nearest(text, texts)]
    return found[:6]


def _text(key: object) -> str:
    plain = type(key) in (str, int, float) or module_name(type(key)).partition(".")[0] in ("pandas", "numpy")
    return bounded_str(key, 80) if plain else ""


def _listed(keys: list[object]) -> str:
    return ", ".join(bounded_repr(key, 60) for key in keys)
