"""The reading itself: where it is, what it has found. How each kind of syntax is read is in the modules beside.

A recording reader also remembers what every expression means, for rules that ask.
"""

from __future__ import annotations

import ast
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cenote_security.rules.findings import Use, UseKind, WatchedNames
from cenote_security.rules.reading import constant_folding
from cenote_security.rules.reading.abstract_values import (
    BUILTIN_CLASSES,
    Closure,
    Lookup,
    Memory,
    NameScope,
    Value,
    kept,
    merge,
    options,
    paths,
)
from cenote_security.rules.reading.known_names import canonical

Handlers = Mapping[type[ast.AST], Callable[["CodeReader", Any], Value]]
"""How to read each kind of node. Any: each function takes the class of node that it is filed under."""

MOST_AGAIN = 200
"""How often, in all, function bodies are read again because a later call passed something new."""

MOST_ITERATIONS = 2_000
"""Items of literal lists, in all, that comprehensions and `map` are followed through one by one."""

LONGEST_LOOP = 64
"""Items of one such list."""


class CodeReader:
    """One pass over a syntax tree.

    scope: where the pass is. branches: how many blocks that may not run, or run again, surround it.
    anchor: the node that stands for all that is found, while code inside a string is read. nesting: how many
    strings deep. closure: the function whose body is being read. pending: functions whose bodies wait.
    returned: what functions were found to return, by a former pass over the same tree.
    """

    def __init__(self, handlers: Handlers, watch: WatchedNames, memory: Memory) -> None:
        self.handlers = handlers
        self.watch = watch
        self.names_watched = watch.names
        self.keywords_watched = watch.keywords
        self._function_tails = watch.function_tails
        self.scope = NameScope("module")
        self.scope.names = dict(memory.names)
        self.fields = dict(memory.fields)
        self.modules = set(memory.modules)
        self.stars = list(memory.stars)
        self.branches = 0
        self.anchor: ast.AST | None = None
        self.nesting = 0
        self.closure: Closure | None = None
        self.pending: deque[Closure] = deque()
        self.closures: list[Closure] = []
        self._again = MOST_AGAIN
        self._iterations = MOST_ITERATIONS
        self.returned: dict[ast.AST, Value] = {}
        self.uses: list[Use] = []
        self._reported: set[tuple[str, str, int]] = set()

    def visit(self, node: ast.AST) -> Value:
        """Read an expression or statement; the value of an expression, as far as it is known."""
        return self.handlers[type(node)](self, node)

    def block(self, statements: Iterable[ast.stmt]) -> None:
        handlers = self.handlers
        for statement in statements:
            handlers[type(statement)](self, statement)

    def branch(self, statements: Iterable[ast.stmt]) -> None:
        """A block that may not run, or not to its end."""
        before = self.enter()
        self.block(statements)
        self.leave(before)

    def loop(self, target: Callable[[], None], statements: Iterable[ast.stmt]) -> None:
        """A block that may run several times. It is read again when it leaves a module to its next round."""
        before = self.enter()
        target()
        self.block(statements)
        carried = (self.scope.names[name] for name in before if name in self.scope.names)
        if any(self.is_module(option) for value in carried for option in options(value)):
            self.scope.join(before)
            self.block(statements)
        self.leave(before)

    def enter(self) -> dict[str, Value]:
        """Begin what may not run; what names meant before is returned, to be given to `leave`."""
        self.branches += 1
        return dict(self.scope.names)

    def leave(self, before: dict[str, Value]) -> None:
        """End it: from here on, names may mean what they did before."""
        self.branches -= 1
        self.scope.join(before)

    def defer(self, closure: Closure) -> None:
        self.pending.append(closure)
        self.closures.append(closure)

    def read_again(self, closure: Closure) -> None:
        """A call passed something new to a function whose body was read already."""
        if self._again and closure not in self.pending:
            self._again -= 1
            self.pending.append(closure)

    def may_iterate(self, count: int) -> bool:
        """Whether so many items are followed one by one. Loops nest: the sum over the whole cell is bounded."""
        if count > min(LONGEST_LOOP, self._iterations):
            return False
        self._iterations -= count
        return True

    def finish(self) -> None:
        """Read the bodies of functions, now that all that they can see is bound."""
        while self.pending:
            self._body(self.pending.popleft())

    def _body(self, closure: Closure) -> None:
        closure.readings += 1
        outer, self.scope = self.scope, NameScope("function", closure.scope, closure.before)
        branches, self.branches, self.closure = self.branches, 0, closure
        self.scope.names.update(closure.parameters)
        self.scope.history.update(closure.parameters)
        if isinstance(closure.node, ast.Lambda):
            closure.returns = self.visit(closure.node.body)
        else:
            self.block(closure.node.body)
        self.scope, self.branches, self.closure = outer, branches, None

    def memory(self) -> Memory:
        """What the next cell's reading should know."""
        names = {name: kept(value) for name, value in self.scope.names.items()}
        fields = {name: kept(value) for name, value in self.fields.items()}
        return Memory(names, fields, self.modules, self.stars)

    # -- names ------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Value) -> None:
        self.scope.set(name, value)
        if self.scope.kind == "class":
            self.keep(name, value)

    def keep(self, name: str, value: Value) -> None:
        """Remember what goes into attributes and items of this name, whatever the object: modules and functions."""
        if value is not None and any("(" not in path for path in paths(value)):
            self.fields[name] = merge(self.fields.get(name), value)

    def is_module(self, value: Value) -> bool:
        return type(value) is str and value in self.modules

    def scoped(self, scope: NameScope) -> NameScope:
        """Enter the scope; the one that was left is returned, to be put back."""
        outer, self.scope = self.scope, scope
        return outer

    def lookup(self, name: str) -> Value | Lookup:
        return self.scope.lookup(name)

    # -- findings ---------------------------------------------------------------------------------------------

    def report(self, kind: UseKind, name: str, node: ast.AST, *, owner: str = "", token: str = "") -> None:
        """Tell the rules, once for each node."""
        place = self.anchor or node
        key = (kind, name, id(place))
        if key not in self._reported:
            self._reported.add(key)
            token = "" if self.anchor else token
            self.uses.append(Use(kind=kind, name=name, node=place, owner=owner, token=token))

    def import_module(self, node: ast.AST, name: str) -> str:
        """The code gets hold of a module; its one name is returned."""
        self.report("module", name, node)
        path = canonical(name)
        self.modules.add(path)
        return path

    def mention(self, node: ast.AST, value: Value) -> None:
        """The code names a function, if only to hand it on. Classes are named all the time: a call reports them."""
        for path in (value,) if type(value) is str else paths(value):
            if path[path.rfind(".") + 1 :] in self._function_tails and path not in BUILTIN_CLASSES:
                self.report("function", path, node)

    def use_function(self, node: ast.AST, path: str) -> None:
        if path[path.rfind(".") + 1 :] in self._function_tails:
            self.report("function", path, node)

    def spelled(self, node: ast.AST, text: str) -> None:
        """A string that spells a watched dunder name: nothing but reflection has a use for it."""
        if len(text) > 4 and text[:2] == "__" and text[-2:] == "__":
            name = text if text.isascii() else unicodedata.normalize("NFKC", text)
            if name in self.watch.attributes:
                self.report("attribute", name, node)


class RecordingReader(CodeReader):
    """As its base, a little slower: made only when a rule of one's own may ask."""

    def __init__(self, handlers: Handlers, watch: WatchedNames, memory: Memory) -> None:
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
            return constant_folding.plain(self._values.get(node))
        except constant_folding.Unfoldable:
            return None
