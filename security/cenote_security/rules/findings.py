"""What a reading reports to rules, what rules ask it to watch for, and the violations that rules find."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal

from cenote_security.errors import RejectedError

UseKind = Literal[
    "module", "function", "method", "attribute", "unreadable module", "unreadable member", "command", "magic"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One thing that the code uses, with aliases resolved.

    kind: `module`: the code gets hold of a module, by any road. `function`: a function of a known module or a
        builtin (`builtins.eval`). `method`: a call of a method of an unknown object. `attribute`: an attribute
        is read, written or deleted, by any road. `unreadable module`, `unreadable member`: the code computes at
        run time which module it imports, or which member it reads of the module or value `name`. `command`: a
        program is started; `name` is its command line as far as it is spelled out. `magic`: one of IPython's
        (`%cd`, `%%bash`; `!` is a shell command, `??` shows source code, `%` and `%%` are magics that cannot be
        told from the code).
    name: dotted name for modules and functions (`os.path.join`; what a call returned is written `f()`, a call that
        is given a watched keyword `f(keyword)`), the bare name for methods and attributes.
    owner: dotted name of what an attribute belongs to, "" when unknown.
    node: where. token: the word within `node` that is meant, when no node stands for it.
    """

    kind: UseKind
    name: str
    node: ast.AST
    owner: str = ""
    token: str = ""


@dataclass(frozen=True, kw_only=True)
class WatchedNames:
    """Names that a set of rules cares about. A reading looks closer at these and passes over the rest.

    modules: dotted modules. functions: dotted functions. methods: bare names of methods and injected functions.
        Both may name a keyword, `logging.basicConfig(filename)`: calls that are given it, other than False and None.
    attributes: bare names. hidden: also every attribute that begins with an underscore.
    """

    modules: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    hidden: bool = False

    @classmethod
    def union(cls, watches: Iterable[WatchedNames]) -> WatchedNames:
        """Everything that any of the watches asks for."""
        parts = tuple(watches)
        return cls(
            modules=frozenset().union(*(part.modules for part in parts)),
            functions=frozenset().union(*(part.functions for part in parts)),
            methods=frozenset().union(*(part.methods for part in parts)),
            attributes=frozenset().union(*(part.attributes for part in parts)),
            hidden=any(part.hidden for part in parts),
        )

    @cached_property
    def function_tails(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self.functions) | self.methods

    @cached_property
    def module_tails(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self.modules)

    @cached_property
    def roots(self) -> frozenset[str]:
        """First parts of dotted names: what an unknown name of a cell most likely is, when it is called that."""
        dotted = (name for name in self.functions | self.modules if "." in name)
        return frozenset(name.partition(".")[0] for name in dotted) - {"builtins"}

    @cached_property
    def keywords(self) -> Mapping[str, tuple[str, ...]]:
        """The keywords that are watched for, by the bare name of the function."""
        found: dict[str, tuple[str, ...]] = {}
        for tail in self.function_tails:
            name, opened, keyword = tail.partition("(")
            if opened:
                found[name] = (*found.get(name, ()), keyword.rstrip(")"))
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Every bare name that deserves a closer look."""
        return self.function_tails | self.module_tails | self.attributes


MOST_SHOWN = 5
"""Violations that the text of an error lists. A model needs the first few; the rest is usually the same mistake."""


@dataclass(frozen=True, slots=True)
class SecurityViolation:
    """One thing that the rules do not allow.

    message: one line for a model: where, what, why, and what to do instead. A rule of one's own makes a violation of
        its reason alone, `SecurityViolation("no printing here")`; the checker places it and completes the line.
    rule: name of the rule. reason: why, without the place. remedy: what to do instead, "" when there is no advice.
    line, column, end_line, end_column: lines count from 1, columns (in characters) from 0, the end is exclusive;
        line 0 says that the place is not known. snippet: the code there, on one line, bounded.
    """

    message: str
    _: KW_ONLY
    rule: str = ""
    reason: str = ""
    remedy: str = ""
    snippet: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return self.message


class SecurityError(RejectedError):
    """The rules refused a cell. Nothing of it ran. `violations` says why; `str()` is what a model reads."""

    def __init__(self, violations: Iterable[SecurityViolation] | str) -> None:
        given = [SecurityViolation(violations)] if isinstance(violations, str) else violations
        self.violations = tuple(given)
        super().__init__(self.violations)

    @property
    def message(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [violation.message for violation in self.violations[:MOST_SHOWN]]
        more = len(self.violations) - len(lines)
        if more > 0:
            lines.append(f"... and {more} more")
        return "\n".join(lines)
