"""The TeamRecord over a ledger: what agents did before their process was killed is replayed, and not repeated.

Each model answer, each cell result and each look at a namespace is recorded when it exists. A process that continues
a run starts the same agents on the same tasks; as long as a task has notes, they are the answers. What was under way
and not recorded is repeated: the model is called again, and the cell is sent under its former key, so that its
runtime attaches to it or returns its result, and runs nothing twice. The idea is that of workflow engines such as
Temporal, whose deterministic code replays its history.

An agent's actions must be a function of its inputs. Its core has no clock and no randomness; what is not a function
of the inputs (seconds, the wording of a notice) decides nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from cenote.agent import AgentResponse, AgentRuntime
from cenote.agent.vocabulary.runtime_port import PassingPort
from cenote.gateway.teams.ledger import Note
from cenote.models import (
    ContextLengthError,
    Message,
    Model,
    ModelChunk,
    ModelError,
    ModelInterruptedError,
    ModelTurn,
    TokenUsage,
)
from cenote.models.base import ReasoningModel, closing, estimate_usage, reasoned
from cenote.models.messages import ReasonedChunk, ReasoningDelta
from cenote.models.prices import list_price
from cenote.runtime.core.listeners import OnOutput
from cenote.runtime.inject.injectables import Injectable
from cenote.team.events import Again, Do
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError, NameExistsError, UsageError
from cenote_worker.execution.results import ExecutionResult, VariableInfo
from cenote_worker.wire.results import from_result, to_result

Write = Callable[[Note], None]
"""Persists one note."""


class ForgottenError(CenoteError):
    """The notes of an interrupted task are used up, and the task is not to continue."""


@dataclass(slots=True, kw_only=True)
class ReplayCursor:
    """write: persists further notes. wanted: whether the task continues after its last note."""

    agent: str
    place: str
    task: str
    write: Write
    notes: list[Note] = field(default_factory=list)
    heard: int = 0
    cells: int = 0
    ended: bool = False
    wanted: bool = True
    is_replayed: bool = False
    """Whether the current action is replayed."""
    in_doubt: bool = False
    """Whether the next action may have happened before, in a process that was killed before it recorded it."""

    def next(self, kind: str) -> Any:
        """The next note's data; None when the action has yet to happen. Raises ForgottenError."""
        self.is_replayed = self.heard < len(self.notes)
        if not self.is_replayed:
            if not self.wanted:
                raise ForgottenError
            return None
        note = self.notes[self.heard]
        if note.kind != kind:
            raise UsageError(
                f"the record of {note.agent}'s work at {self.place!r} does not fit what it does now"
            )
        self.heard += 1
        return json.loads(note.data)

    def note(self, kind: str, data: object) -> None:
        """Records an action whose result the agent got."""
        note = Note(agent=self.agent, place=self.place, number=len(self.notes), kind=kind, data=as_text(data))
        self.write(note)
        self.notes.append(note)
        self.heard += 1
        self.in_doubt = False

    def mark(self, kind: str, data: object) -> None:
        """Records a beginning or an end, which replay does not return."""
        self.write(Note(agent=self.agent, place=self.place, number=0, kind=kind, data=as_text(data)))


def as_text(data: object) -> str:
    """The data of a note as text."""
    return json.dumps(data, separators=(",", ":"))


class RecordedModel(ReasoningModel):
    """Replays recorded answers of a model, each in one piece and at no cost."""

    def __init__(self, course: Callable[[], ReplayCursor], model: Model) -> None:
        """course: the cursor of the task that the agent works on."""
        self.model_id = model.model_id
        self._course = course
        self._model = model

    def redact(self, text: str) -> str:
        return self._model.redact(text)

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        known = self._course().next("turn")
        if known is not None:
            for heard in _heard(known):
                yield heard
            return
        pieces: list[str] = []
        finished = False
        began = time.monotonic()

        def note(turn: ModelTurn | None) -> None:
            text = "".join(pieces)
            # Of a call that is stopped, no server reports the usage.
            usage = estimate_usage(messages, text, self.model_id) if turn is None else turn.usage
            self._note(text, turn, self._call(usage, time.monotonic() - began))

        try:
            async with closing(reasoned(self._model, messages)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, str):
                        pieces.append(chunk)
                    elif not isinstance(chunk, ReasoningDelta):
                        finished = True
                        note(chunk)
                    yield chunk
        except GeneratorExit:  # the agent has stopped reading
            if not finished:
                note(None)
            raise
        except ModelError as error:
            self._fail("".join(pieces), error)
            raise

    def _note(self, text: str, turn: ModelTurn | None, call: dict[str, Any]) -> None:
        ending = None if turn is None else {**asdict(turn), "usage": asdict(turn.usage)}
        self._course().note("turn", {"text": text, "turn": ending, "call": call})

    def _call(self, usage: TokenUsage, seconds: float) -> dict[str, Any]:
        """What a call took, as the content of a ModelCall. At the list price, where there is one."""
        price = list_price(self.model_id)
        return {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "nanodollars": 0 if price is None else price.nanodollars(usage),
            "seconds": round(seconds, 3),
        }

    def _fail(self, text: str, error: ModelError) -> None:
        """Records the failures after which an agent continues; any other ends its task."""
        if isinstance(error, ContextLengthError | ModelInterruptedError):
            kind = "context" if isinstance(error, ContextLengthError) else "interrupted"
            told = {"text": text, "error": kind, "message": self.redact(error.message)}
            self._course().note("turn", told)


def _heard(known: dict[str, Any]) -> list[ModelChunk]:
    """The chunks of a recorded turn. Raises the error that it ended with."""
    if known.get("error") == "context":
        raise ContextLengthError(known["message"])
    if known.get("error") == "interrupted":
        raise ModelInterruptedError(known["message"], known["text"])
    chunks: list[ModelChunk] = [known["text"]] if known["text"] else []
    if (turn := known["turn"]) is not None:
        usage = TokenUsage(**turn["usage"])
        chunks.append(ModelTurn(turn["text"], turn["finish_reason"], usage))
    return chunks


class RecordedPort(PassingPort):
    """Returns recorded results of an agent's cells without running them. Carries out AgentRuntime."""

    def __init__(
        self,
        course: Callable[[], ReplayCursor],
        inner: AgentRuntime,
        register: Callable[[Sequence[Injectable]], None],
    ) -> None:
        """course: the cursor of the agent's task. register: records the items that the namespace has already."""
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
        """Injects what is missing: an earlier process may have been killed before recording what it injected."""
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


Register = Callable[[str, Sequence[Injectable]], None]


class RecordedTeam:
    """See TeamRecord. notes: of earlier processes of the run. write: adds to them. For one event loop."""

    def __init__(self, notes: Sequence[Note], write: Write, register: Register) -> None:
        """register: records the items that an agent's namespace has already, see RuntimeCore.register."""
        self._write = write
        self._register = register
        self._once: set[tuple[str, str, str]] = set()
        self._past: dict[str, dict[str, ReplayCursor]] = {}
        self._current: dict[str, ReplayCursor] = {}
        for note in notes:
            self._load(note)

    def _load(self, note: Note) -> None:
        courses = self._past.setdefault(note.agent, {})
        match note.kind:
            case "once":
                self._once.add((note.agent, note.place, json.loads(note.data)))
            case "task":
                courses[note.place] = self._course_of(note.agent, note.place, json.loads(note.data))
                courses[note.place].in_doubt = True
            case "ended":
                courses[note.place].ended = True
            case _:
                courses[note.place].notes.append(note)

    def turns(self, agent: str) -> int:
        """Recorded answers of the agent's model."""
        courses = self._past.get(agent, {}).values()
        return sum(note.kind == "turn" for course in courses for note in course.notes)

    def course(self, agent: str) -> ReplayCursor:
        """The cursor of the task that the agent works on."""
        return self._current[agent]

    def place(self, agent: str) -> str:
        return self._current[agent].place if agent in self._current else ""

    def is_replayed(self, agent: str) -> bool:
        """Whether the agent's current action is replayed."""
        return agent in self._current and self._current[agent].is_replayed

    def is_rehearsed(self, agent: str) -> bool:
        """Whether the agent is only replayed and will not continue."""
        return agent in self._current and not self._current[agent].wanted

    # -- TeamRecord --

    def model(self, agent: str, model: Model) -> Model:
        return RecordedModel(partial(self.course, agent), model)

    def port(self, agent: str, port: AgentRuntime) -> AgentRuntime:
        return RecordedPort(partial(self.course, agent), port, partial(self._register, agent))

    async def work(
        self, agent: str, place: str, task: str, carry_out: Callable[[str], Awaitable[AgentResponse]]
    ) -> AgentResponse:
        course = await self._remember(agent, place, task, carry_out)
        if course is None:
            course = self._course_of(agent, place, task)
            course.mark("task", task)
        self._current[agent] = course
        response = await carry_out(task)
        if not course.ended:
            course.mark("ended", "")
            course.ended = True
        return response

    async def once(self, agent: str, place: str, what: str, do: Do, again: Again, rest: Do) -> None:
        if (agent, place, what) in self._once:
            again()
            return
        try:
            await do()
        except NameExistsError:  # a process did it, and was killed before it recorded that
            await rest()
        self._write(Note(agent=agent, place=place, number=0, kind="once", data=as_text(what)))
        self._once.add((agent, place, what))

    def called(self, agent: str, number: int) -> str:
        course = self._current[agent]
        return f"{course.place}/{agent}.{course.cells}.{number}"

    async def _remember(
        self, agent: str, place: str, task: str, carry_out: Callable[[str], Awaitable[AgentResponse]]
    ) -> ReplayCursor | None:
        """Replays what the agent did in earlier processes; returns the cursor of this task, if any."""
        wanted: ReplayCursor | None = None
        for course in self._past.pop(agent, {}).values():
            if course.place == place and course.task == task:
                wanted = course
                continue
            course.wanted = False
            self._current[agent] = course
            try:
                await carry_out(course.task)
            except ForgottenError:
                continue
        return wanted

    def _course_of(self, agent: str, place: str, task: str) -> ReplayCursor:
        return ReplayCursor(agent=agent, place=place, task=task, write=self._write)
