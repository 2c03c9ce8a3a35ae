"""All syntax that a reading knows, and the reading of a whole cell."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from cenote_security.rules.findings import Use, WatchedNames
from cenote_security.rules.reading.abstract_values import Memory, Value, paths
from cenote_security.rules.reading.calls import CALLS
from cenote_security.rules.reading.expressions import EXPRESSIONS
from cenote_security.rules.reading.reader import CodeReader
from cenote_security.rules.reading.statements import STATEMENTS


class UnreadableSyntaxError(Exception):
    """The code has syntax that this version does not know. What cannot be read is not let through."""


class _Handlers(dict[type[ast.AST], Callable[[CodeReader, Any], Value]]):
    def __missing__(self, kind: type[ast.AST]) -> NoReturn:
        raise UnreadableSyntaxError(kind.__name__)


HANDLERS = _Handlers({**EXPRESSIONS, **STATEMENTS, **CALLS})


class Reading:
    """What one cell uses, and what the next reading should know.

    Raises UnreadableSyntaxError for syntax that is unknown here, RecursionError for code that is nested too deeply.
    """

    def __init__(
        self, tree: ast.Module, watch: WatchedNames, memory: Memory, make: type[CodeReader] = CodeReader
    ) -> None:
        self.reader = _read(make(HANDLERS, watch, memory), tree)
        if returned := _modules_returned(self.reader):
            # A function hands a module out: now that this is known, its callers are read once more.
            again = make(HANDLERS, watch, memory)
            again.returned = returned
            self.reader = _read(again, tree)

    @property
    def uses(self) -> list[Use]:
        return self.reader.uses

    def memory(self) -> Memory:
        return self.reader.memory()


def _read(reader: CodeReader, tree: ast.Module) -> CodeReader:
    reader.block(tree.body)
    reader.finish()
    return reader


def _modules_returned(reader: CodeReader) -> dict[ast.AST, Value]:
    return {
        closure.node: closure.returns
        for closure in reader.closures
        if any(path in reader.modules for path in paths(closure.returns))
    }
