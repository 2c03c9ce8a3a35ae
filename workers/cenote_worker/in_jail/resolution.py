"""What an expression of a failed frame refers to, found without running any of the user's code."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from types import ModuleType

from cenote_worker.in_jail.bounded import bases
from cenote_worker.in_jail.cells import CellCompiler
from cenote_worker.in_jail.frames import Step, characters, source_line
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_LONGEST = 2_000
_LONGEST_CELL = 20_000
_UNKNOWN = object()
_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__


class FailedExpression:
    """The innermost expression that failed in one frame, as syntax, with the names that it could see."""

    def __init__(self, compiler: CellCompiler, step: Step) -> None:
        self.tree = _parse(_source(compiler, step))
        self._cell = compiler.source(step.filename)
        self._open: set[str] = set()
        self._scopes: tuple[Mapping[str, object], ...] = (
            step.frame.f_locals,
            step.frame.f_globals,
            step.frame.f_builtins,
        )

    def called(self) -> object | None:
        """The function of a failed call, None when it is not a call or cannot be told."""
        return self.resolve(self.tree.func) if isinstance(self.tree, ast.Call) else None

    def indexed(self) -> object | None:
        """What `[...]` was applied to in a failed subscription, None when that is not what failed."""
        return self.resolve(self.tree.value) if isinstance(self.tree, ast.Subscript) else None

    def values(self) -> Iterator[object]:
        """Whatever the names and attributes in the expression stand for, outermost first."""
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
        """What a variable of a comprehension may stand for: the first element of what it runs over.

        From Python 3.12 on a comprehension has no frame of its own, and its variables are gone when it fails.
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
    """An attribute that lies in a dictionary: of the instance, or of a class or module. Descriptors are not run."""
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


def _source(compiler: CellCompiler, step: Step) -> str:
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
