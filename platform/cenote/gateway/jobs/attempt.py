"""One attempt at one task, in a runtime of its own: setup, variables, the cell or the agent, the result.

Cells and values wait for the tenant's quota instead of failing at once. What a task did is logged as text, of which
the head and the tail are kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final, Literal, TypeVar

from cenote.agent import AgentRuntime, CaveAgent
from cenote.agent.vocabulary.events import Event, EventType
from cenote.agent.vocabulary.response import AgentResponse, ExecutionStatus, StopReason
from cenote.agent.vocabulary.runtime_port import PassingPort
from cenote.gateway.jobs.ledger import TaskFailure, TaskOutcome, TaskRow
from cenote.gateway.jobs.schedule import Verdict
from cenote.gateway.jobs.tables import MAX_MESSAGE
from cenote.models import Model, ModelError
from cenote.models.errors import ContextLengthError, ModelRequestError
from cenote.runtime.core.listeners import AsyncListener, OnOutput
from cenote.runtime.core.replies import done
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.inject.injectables import Injectable, Variable
from cenote.runtime.inject.references import ObjectReference
from cenote.team.errors import BudgetExceededError
from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2, job_pb2
from cenote_security.errors import (
    CenoteError,
    IsolationUnavailableError,
    JailError,
    JailStartError,
    MalformedValueError,
    OutcomeUnknownError,
    QuotaExceededError,
    RuntimeLostError,
    UnavailableError,
    UnknownNameError,
    UnknownRuntimeError,
)
from cenote_security.values.plain_json import NotPlainError, as_json
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, VariableInfo
from cenote_worker.runtime.jail_requests import WrittenForm
from cenote_worker.supervisor.frame_parser import ValueReply
from cenote_worker.supervisor.requests import Outcome

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0

PATIENCE: Final = 600.0
"""Seconds of waiting in one request: what does not fit by then may never fit."""


class PatientPort(PassingPort):
    """Carries out AgentRuntime, and is a runtime to an agent: see HasPort."""

    def __init__(self, inner: AgentRuntime, waited: Callable[[float], None]) -> None:
        """waited: called with the seconds of each wait, which do not count as the task's time."""
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


HEAD: Final = 16 * 2**10
TAIL: Final = 16 * 2**10
"""Characters."""


class TaskLogText:
    """The log of one attempt."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0
        self._last = ""

    def __str__(self) -> str:
        cut = f"\n... {self._left_out} characters left out ...\n" if self._left_out else ""
        return self._head + cut + self._tail

    @property
    def left_out(self) -> int:
        return self._left_out

    def cell(self, what: str, result: ExecutionResult) -> None:
        """what: `setup`, or `code`."""
        for heading, text in (
            (f"{what}: output", result.stdout),
            (f"{what}: errors", result.stderr),
            (f"{what}: failed", str(result.error) if result.error is not None else ""),
        ):
            self.block(heading, text)

    def hear(self, event: Event) -> None:
        """Logs an event of the agent."""
        if event.type.is_passing:
            return
        if event.type is EventType.TEXT:
            self._add(event.content if self._last == "text" else f"--- text\n{event.content}", "text")
        else:
            self.block(event.type.value, event.content)

    def block(self, heading: str, text: str) -> None:
        if text:
            self._add(f"--- {heading}\n{text}", heading)

    def _add(self, text: str, kind: str) -> None:
        """Adds text; text of another kind begins on a new line."""
        before = self._tail or self._head
        text = text if kind == self._last == "text" or not before or before.endswith("\n") else f"\n{text}"
        self._last = kind
        room = HEAD - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        self._left_out += max(0, len(tail) - TAIL)
        self._tail = tail[-TAIL:]


log = logging.getLogger("cenote.jobs")

MAX_VALUE: Final = 256 * 2**10
"""Characters of a task's result as JSON; larger results belong in files or shared values."""

_JSON: Final = WrittenForm(jail_pb2.JSON_VALUE, most=4 * MAX_VALUE)

MAX_ANSWER: Final = 64 * 2**10
"""Characters of a message that are kept."""

GRACE: Final = 5.0
"""Seconds for an interrupted cell to return."""

Stage = Literal["setup", "variables", "task", "result", "platform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The end of an attempt. An outcome without an error is a success."""

    verdict: Verdict
    outcome: TaskOutcome


class _FailedError(Exception):
    """The attempt is over. hopeless: another attempt would have the same result."""

    def __init__(self, failure: TaskFailure, *, hopeless: bool = False) -> None:
        super().__init__(failure)
        self.failure = failure
        self.hopeless = hopeless


class TaskAttempt:
    """variables: shared ones, by name. model: the agent's, for a task given as text."""

    def __init__(
        self,
        runtime: AsyncPythonRuntime,
        definition: job_pb2.JobDefinition,
        row: TaskRow,
        variables: Mapping[str, ObjectReference],
        model: Model | None,
    ) -> None:
        self._runtime = runtime
        self._definition = definition
        self._row = row
        self._variables = variables
        self._model = model
        self._log = TaskLogText()
        self._stage: Stage = "platform"
        self._ends = 0.0
        self._limit = asyncio.timeout(None)
        self._port = PatientPort(runtime.port, self._prolong)

    async def carry_out(self) -> AttemptResult:
        """Runs the attempt. Raises only CancelledError: errors become the attempt's outcome."""
        began = monotonic()
        ended = await self._ended()
        outcome = replace(
            ended.outcome,
            duration=monotonic() - began,
            log=utf8_text(str(self._log)),
            left_out=self._log.left_out,
        )
        return replace(ended, outcome=outcome)

    async def _ended(self) -> AttemptResult:
        try:
            await asyncio.to_thread(self._runtime.core.start)
        except (QuotaExceededError, UnavailableError) as error:
            return self._not_begun(error)
        except CenoteError as error:
            return AttemptResult(verdict="over", outcome=TaskOutcome(error=self._failure(error, "platform")))
        try:
            async with self._limit:
                self._begin_time()
                return AttemptResult(verdict="over", outcome=await self._work())
        except TimeoutError:
            if not self._limit.expired():
                raise
            failure = TaskFailure(
                type="TimeoutError",
                message=f"the task took longer than {self._definition.timeout:g} s",
                reason="time",
                stage=self._stage,
            )
            return AttemptResult(verdict="failed", outcome=TaskOutcome(error=failure))
        except _FailedError as error:
            verdict: Verdict = "over" if error.hopeless else "failed"
            return AttemptResult(verdict=verdict, outcome=TaskOutcome(error=error.failure))
        except CenoteError as error:
            return self._of_error(error)
        except Exception:
            log.exception("a task failed")
            failure = TaskFailure(
                type="InternalError",
                message="the platform failed at this; its operator's log says how",
                reason="platform",
                stage="platform",
            )
            return AttemptResult(verdict="over", outcome=TaskOutcome(error=failure))

    def _not_begun(self, error: CenoteError) -> AttemptResult:
        """The result of an attempt in which nothing ran."""
        hopeless = isinstance(error, IsolationUnavailableError | JailStartError)
        failure = self._failure(error, "platform")
        return AttemptResult(verdict="failed" if hopeless else "crowded", outcome=TaskOutcome(error=failure))

    def _of_error(self, error: CenoteError) -> AttemptResult:
        verdict, reason = _meaning(error)
        return AttemptResult(verdict=verdict, outcome=TaskOutcome(error=self._failure(error, reason)))

    async def _work(self) -> TaskOutcome:
        self._stage = "variables"
        given = json.loads(self._row.variables) if self._row.variables else {}
        items = [Variable(name, value) for name, value in {**self._variables, **given}.items()]
        if items:
            await self._port.inject(*items)
        self._stage = "setup"
        if self._definition.setup.strip():
            self._check(await self._execute("setup", self._definition.setup))
        self._stage = "task"
        answer = await (self._cell() if self._row.kind == "code" else self._agent())
        self._stage = "result"
        text = await self._result() if self._definition.result else ""
        return TaskOutcome(value=text, answer=_cut(utf8_text(answer), MAX_ANSWER))

    async def _cell(self) -> str:
        result = self._check(await self._execute("code", self._row.work))
        return result.reply if result.reply is not None else result.value or ""

    async def _execute(self, what: str, code: str) -> ExecutionResult:
        result = await self._port.execute(code, timeout=self._left(), on_output=None, cause=f"job {what}")
        self._log.cell(what, result)
        return result

    def _check(self, result: ExecutionResult) -> ExecutionResult:
        if result.error is not None or not result.success:
            raise _FailedError(self._of_cell(result.error or ErrorInfo(type="Error", message="it failed")))
        return result

    async def _agent(self) -> str:
        assert self._model is not None, "checked when the job came"
        settings: dict[str, Any] = {
            field.name: value for field, value in self._definition.settings.ListFields()
        }
        agent = CaveAgent(self._model, self._port, on_event=self._log.hear, **settings)
        response = await agent.run(self._row.work)
        if response.status is not ExecutionStatus.SUCCESS:
            raise _FailedError(_unfinished(response))
        return response.content

    async def _result(self) -> str:
        name = self._definition.result
        listener = AsyncListener(self._runtime.core.resume, None)
        self._runtime.core.fetch(name, listener, opaque=False, written=_JSON)
        try:
            return _checked(done(await listener.future, name))
        except (NotPlainError, MalformedValueError) as error:  # another attempt would give the same
            raise _FailedError(self._failure(error, "result"), hopeless=True) from None
        except UnknownNameError as error:  # an agent may define it in another attempt
            hopeless = self._row.kind == "code"
            raise _FailedError(self._failure(error, "result"), hopeless=hopeless) from None

    # -- time --

    def _begin_time(self) -> None:
        if self._definition.timeout:
            self._ends = asyncio.get_running_loop().time() + self._definition.timeout
            self._limit.reschedule(self._ends + self._grace)

    @property
    def _grace(self) -> float:
        """The cell has its own time limit, and its error says more than one from here could."""
        return GRACE if self._row.kind == "code" else 0.0

    def _left(self) -> float | None:
        if not self._ends:
            return None
        return max(self._ends - asyncio.get_running_loop().time(), 0.001)

    def _prolong(self, seconds: float) -> None:
        """Extends the deadline by the seconds spent waiting for room."""
        if self._ends:
            self._ends += seconds
            self._limit.reschedule(self._ends + self._grace)

    # -- reporting --

    def _failure(self, error: CenoteError, reason: str) -> TaskFailure:
        message = str(error)
        if self._model is not None:
            with suppress(Exception):
                message = self._model.redact(message)
        return TaskFailure(
            type=type(error).__name__,
            message=_cut(utf8_text(message), MAX_MESSAGE),
            reason=reason,
            stage=self._stage,
        )

    def _of_cell(self, error: ErrorInfo) -> TaskFailure:
        return TaskFailure(
            type=utf8_text(error.type)[:200],
            message=_cut(utf8_text(error.message), MAX_MESSAGE),
            reason="lost" if error.outside else error.reason,
            stage=self._stage,
        )


def _checked(reply: Outcome) -> str:
    """The result as JSON. It comes from a jail, so it is parsed and written again. Raises NotPlainError."""
    if not isinstance(reply, ValueReply):
        raise MalformedValueError("the runtime gave no value")
    with closing(reply.content) as content:
        text = content.whole()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedValueError("the runtime gave no JSON") from None
    result = as_json(found, "the result")
    if len(result) > MAX_VALUE:
        raise NotPlainError(f"the result has {len(result)} characters as JSON, of up to {MAX_VALUE}")
    return result


def _meaning(error: CenoteError) -> tuple[Verdict, str]:
    """Whether another attempt may help after this error, and the reason to report."""
    match error:
        case QuotaExceededError():
            return "failed", "quota"
        case BudgetExceededError():
            return "over", "budget"
        case ContextLengthError():
            return "over", "context"
        case ModelRequestError():
            return "over", "model"
        case ModelError():
            return "failed", "model"
        case OutcomeUnknownError() | RuntimeLostError() | UnknownRuntimeError() | UnavailableError():
            return "lost", "lost"
        case JailError():
            return "failed", "jail"
    return "over", "exception"


def _unfinished(response: AgentResponse) -> TaskFailure:
    steps = response.status is ExecutionStatus.MAX_STEPS_REACHED
    message = (
        f"the agent used up its {response.max_steps} steps"
        if steps
        else _ENDS.get(response.stop_reason, f"the run ended without an answer: {response.stop_reason.value}")
    )
    last = f"; the last it said: {response.content[:1000]}" if response.content else ""
    return TaskFailure(
        type="MaxStepsReached" if steps else "Incomplete",
        message=_cut(utf8_text(message + last), MAX_MESSAGE),
        reason="steps" if steps else "incomplete",
        stage="task",
    )


_ENDS = {
    StopReason.INCOMPLETE: "the model's answers were cut off, empty, or no blocks, again and again",
    StopReason.CONTENT_FILTER: "the provider's filter stopped the model's answer",
    StopReason.REFUSAL: "the model declined",
    StopReason.LOOPING: "the model ran the same block with the same output again and again",
}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
