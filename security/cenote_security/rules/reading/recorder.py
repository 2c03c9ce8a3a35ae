"""A reader that remembers what every expression means, for rules that ask."""

from __future__ import annotations

import ast

from cenote_security.rules.reading import fold
from cenote_security.rules.reading.memory import Memory
from cenote_security.rules.reading.reader import Handlers, Reader
from cenote_security.rules.reading.value import Value, paths
from cenote_security.rules.use import Watch


class Recorder(Reader):
    """As its base, a little slower: made only when a rule of one's own may ask."""

    def __init__(self, handlers: Handlers, watch: Watch, memory: Memory) -> None:
        super().__init__(handlers, watch, memory)
        self._values: dict[ast.AST, Value] = {}

    def visit(self, node: ast.AST) -> Value:
        value = super().visit(node)
        if value is not None:
            self._values[node] = value
        return value

    def name_of(self, node: ast.AST) -> str | None:
        """The dotted name of what the expression means; None when it has none or is not known."""
        return next(paths(self._values.get(node)), None)

    def constant_of(self, node: ast.AST) -> object:
        """What the expression spells; None when that is not known."""
        if isinstance(node, ast.Constant):
            return node.value
        try:
            return fold.plain(self._values.get(node))
        except fold.Unfoldable:
            return None
