"""A rule about functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cenote_security.rules import remedies
from cenote_security.rules.names import names_of
from cenote_security.rules.reading.modules import canonical
from cenote_security.rules.reading.scope import BUILTINS
from cenote_security.rules.rule import UseRule
from cenote_security.rules.use import Use, Watch

SAME_FUNCTION: Mapping[str, tuple[str, ...]] = {
    "builtins.__import__": ("importlib.__import__",),
    "builtins.open": ("io.open", "io.open_code", "codecs.open"),
    "builtins.breakpoint": ("sys.breakpointhook",),
}
"""Other names of the same function."""

_GONE = frozenset({"raw_input", "execfile", "file", "reload"})
"""Builtins of former Pythons: nobody means a method by these."""


class FunctionRule(UseRule):
    """Forbids functions: calling them, and handing them on to be called.

    forbidden_functions: a bare name that is a builtin means that builtin, whatever alias it goes by, and no method:
        with `eval` and `open`, `df.eval(...)` and `door.open()` are fine, and so is a function of that name that the
        code defines itself. Any other bare name means every function and method that is called by it. A dotted name
        (`os.system`, `pandas.read_csv`) means that function. With a keyword, `logging.basicConfig(filename)` or
        `from_pretrained(trust_remote_code)`, it means calls that are given it, other than False and None.
    description: why, for the message. remedy: what to do instead.
    """

    def __init__(
        self, forbidden_functions: Iterable[str], description: str | None = None, *, remedy: str | None = None
    ) -> None:
        self.forbidden_functions = names = names_of(forbidden_functions, '["eval", "os.system"]')
        self.description = description
        self._functions = frozenset(_expanded(names))
        self._exported = {
            (root, name)
            for root, _, name in (function.partition(".") for function in self._functions)
            if root != "builtins"
        }
        self._methods = frozenset(name for name in names if "." not in name and name not in BUILTINS) - _GONE
        super().__init__(Watch(functions=self._functions, methods=self._methods), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.forbidden_functions)})"

    def judge(self, use: Use) -> str | None:
        if use.kind == "unreadable member" and self._may_be_member_of(use.name):
            return f"which member of {use.name} is used cannot be told from the code{self._why}"
        if use.kind == "method" and use.name in self._methods:
            return f"function {use.name} is not allowed here{self._why}"
        if use.kind == "function" and self._forbidden(use.name):
            return f"function {use.name.removeprefix('builtins.')} is not allowed here{self._why}"
        return None

    @property
    def _why(self) -> str:
        return f" ({self.description})" if self.description else ""

    def _may_be_member_of(self, module: str) -> bool:
        return bool(module) and any(name.rpartition(".")[0] == module for name in self._functions)

    def _forbidden(self, path: str) -> bool:
        if path.rpartition(".")[2] in self._methods or path in self._functions:
            return True
        if "(" in path:
            return path.replace("()", "") in self._functions
        return self._exported_again(path)

    def _exported_again(self, path: str) -> bool:
        """Whether a module deeper in its package has the function, too: `pandas.io.api.read_csv`."""
        root, *between = path.split(".")
        name = between.pop() if between else ""
        return (root, name) in self._exported and all(part.islower() for part in between)

    def advice(self, use: Use) -> str:
        return self.remedy or remedies.FUNCTIONS.get(use.name) or self.default_remedy


def _expanded(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        known = BUILTINS.get(name, f"builtins.{name}" if name in _GONE else canonical(name))
        if "." in known or name in BUILTINS:
            yield known
            yield from SAME_FUNCTION.get(known, ())
