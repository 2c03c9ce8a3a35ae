"""A runtime of an agent, of which is written down what its cells gave and what was seen of its namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from cenote.agent import AgentRuntime
from cenote.agent.passing_port import PassingPort
from cenote.gateway.teams.course import Course
from cenote.runtime.injectables import Injectable
from cenote.runtime.listeners import OnOutput
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import NameExistsError
from cenote_worker.results import ExecutionResult, VariableInfo
from cenote_worker.wire.results import from_result, to_result


class RecordedPort(PassingPort):
    """What an agent's cells gave before comes from the record, and is not run. Carries out AgentRuntime."""

    def __init__(
        self,
        course: Callable[[], Course],
        inner: AgentRuntime,
        register: Callable[[Sequence[Injectable]], None],
    ) -> None:
        """course: the task that its agent works on. register: takes up what is in the namespace already."""
        super().__init__(inner)
        self._course = course
        self._register = register

    async def execute(
        self, code: str, *, timeout: float | None, on_output: OnOutput | None, cause: str = ""
    ) -> ExecutionResult:
        course = self._course()
        course.cells += 1
        known = course.next("cell")
        if known is not None:
            return _result(known)
        result = await self._inner.execute(code, timeout=timeout, on_output=on_output, cause=cause)
        told = {"result": from_result(result).SerializeToString().hex(), "news": result.news}
        course.note("cell", told)
        return result

    async def inject(self, *items: Injectable) -> None:
        course = self._course()
        if course.next("inject") is not None:
            self._register(items)
            return
        if course.in_doubt:
            await self._inject_missing(items)
        else:
            await self._inner.inject(*items)
        course.note("inject", [item.name for item in items])

    async def _inject_missing(self, items: Sequence[Injectable]) -> None:
        """The process before this one may have put them there, or some, and was killed before it had written that."""
        try:
            await self._inner.inject(*items)
        except NameExistsError:
            for item in items:
                await self._inject_or_register(item)

    async def _inject_or_register(self, item: Injectable) -> None:
        try:
            await self._inner.inject(item)
        except NameExistsError:
            self._register((item,))

    async def describe(self) -> Sequence[VariableInfo]:
        known = self._course().next("look")
        if known is not None:
            return [_info(info) for info in known]
        described = list(await self._inner.describe())
        self._course().note("look", [asdict(info) for info in described])
        return described


def _result(known: dict[str, Any]) -> ExecutionResult:
    message = runtime_pb2.CellResult.FromString(bytes.fromhex(known["result"]))
    return replace(to_result(message), news=tuple(known["news"]))


def _info(known: dict[str, Any]) -> VariableInfo:
    shape = None if known["shape"] is None else tuple(known["shape"])
    return VariableInfo(**{**known, "shape": shape})
