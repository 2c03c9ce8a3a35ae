"""A runtime as an agent sees it, around another one: for whoever changes some of what passes."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.agent.port import AgentRuntime, Violation
from cenote.runtime.authors import Scope
from cenote.runtime.injectables import Function, Type, Variable


class PassingPort:
    """Says of itself what the inner one does. Whoever derives from it carries out the rest of AgentRuntime."""

    def __init__(self, inner: AgentRuntime) -> None:
        self._inner = inner

    @property
    def author(self) -> str:
        return self._inner.author

    @property
    def scope(self) -> Scope:
        return self._inner.scope

    @property
    def functions(self) -> Sequence[Function]:
        return self._inner.functions

    @property
    def variables(self) -> Sequence[Variable]:
        return self._inner.variables

    @property
    def types(self) -> Sequence[Type]:
        return self._inner.types

    def check(self, code: str) -> Sequence[Violation]:
        return self._inner.check(code)
