"""A runtime's port where cells and values wait for the tenant's quota, instead of failing over it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from cenote.agent import AgentRuntime
from cenote.agent.passing_port import PassingPort
from cenote.runtime.injectables import Injectable
from cenote.runtime.listeners import OnOutput
from cenote_security.errors import QuotaExceededError
from cenote_worker.results import ExecutionResult, VariableInfo

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0

PATIENCE: Final = 600.0
"""Seconds of waiting in one request: what does not fit after that may never do so."""


class PatientPort(PassingPort):
    """Carries out AgentRuntime, and is a runtime to an agent: see HasPort."""

    def __init__(self, inner: AgentRuntime, waited: Callable[[float], None]) -> None:
        """waited: hears how long each wait took, in seconds, which is not the task's time."""
        super().__init__(inner)
        self._waited = waited

    @property
    def port(self) -> AgentRuntime:
        return self

    async def execute(
        self, code: str, *, timeout: float | None, on_output: OnOutput | None, cause: str = ""
    ) -> ExecutionResult:
        return await self._patiently(
            lambda: self._inner.execute(code, timeout=timeout, on_output=on_output, cause=cause)
        )

    async def inject(self, *items: Injectable) -> None:
        await self._patiently(lambda: self._inner.inject(*items))

    async def describe(self) -> Sequence[VariableInfo]:
        return await self._inner.describe()

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        pause, waited = FIRST_PAUSE, 0.0
        while True:
            try:
                return await ask()
            except QuotaExceededError:  # nothing ran
                if waited >= PATIENCE:
                    raise
                waited += pause
                self._waited(pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
