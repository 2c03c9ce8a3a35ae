"""A runtime as an agent sees it, with something before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from cenote.agent.port import AgentRuntime, Violation
from cenote.runtime.authors import Scope
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote_worker.results import VariableInfo

Port = TypeVar("Port", bound=AgentRuntime)


class PortAround(Generic[Port]):
    """All but cells is the inner port's affair, where a subclass does not say otherwise."""

    def __init__(self, inner: Port) -> None:
        self.inner = inner

    @property
    def author(self) -> str:
        return self.inner.author

    @property
    def scope(self) -> Scope:
        return self.inner.scope

    @property
    def functions(self) -> Sequence[Function]:
        return self.inner.functions

    @property
    def variables(self) -> Sequence[Variable]:
        return self.inner.variables

    @property
    def types(self) -> Sequence[Type]:
        return self.inner.types

    async def inject(self, *items: Injectable) -> None:
        await self.inner.inject(*items)

    async def describe(self) -> Sequence[VariableInfo]:
        return await self.inner.describe()

    def check(self, code: str) -> Sequence[Violation]:
        return self.inner.check(code)
