"""The TeamRecord over a ledger: what agents did before their process was killed is heard once more, and not done.

Each answer of a model, each result of a cell and each look at a namespace is written down when it is there. A process
that goes on runs the same agents on the same tasks; as long as there are notes of a task, they answer. What was under
way and not written down, happens: the model is asked again, and the cell is sent under the key that it was sent
under, so that its runtime joins it or gives its result, and runs nothing twice. The idea is that of workflow engines
such as Temporal, whose deterministic code replays its history.

What an agent does must follow from what it hears. Its core has no clock and no chance in it; what does not follow
(seconds, the wording of a notice) decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from cenote.agent import AgentResponse, AgentRuntime
from cenote.agent.port_around import PortAround
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
from cenote.runtime.injectables import Injectable
from cenote.runtime.listeners import OnOutput
from cenote.team.record import Again
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UsageError
from cenote_worker.results import ExecutionResult, VariableInfo
from cenote_worker.wire.results import from_result, to_result

Register = Callable[[str, Sequence[Injectable]], None]

Write = Callable[[Note], None]
"""Writes down what has happened, for good."""


class _Forgotten(Exception):
    """The notes of a task that was broken off are at their end, and nobody wants it to go on."""


@dataclass(slots=True)
class Course:
    """One task of one agent: what is written down of it, and how far that was heard. wanted: whether it goes on."""

    place: str
    task: str
    notes: list[Note] = field(default_factory=list)
    heard: int = 0
    cells: int = 0
    ended: bool = False
    wanted: bool = True
    is_replayed: bool = False
    """Whether what happens now has happened before."""

    def next(self, kind: str) -> Any:
        """The next note, as data; None when it has yet to happen."""
        self.is_replayed = self.heard < len(self.notes)
        if not self.is_replayed:
            if not self.wanted:
                raise _Forgotten
            return None
        note = self.notes[self.heard]
        if note.kind != kind:
            raise UsageError(
                f"the record of {note.agent}'s work at {self.place!r} does not fit what it does now"
            )
        self.heard += 1
        return json.loads(note.data)


class RecordedTeam:
    """See TeamRecord. notes: of the run, by processes before this one. write: adds to them. One event loop's."""

    def __init__(self, notes: Sequence[Note], write: Write, register: Register) -> None:
        """register: takes up what is in an agent's namespace already, see RuntimeCore.register."""
        self._write = write
        self._register = register
        self._once: set[tuple[str, str, str]] = set()
        self._past: dict[str, dict[str, Course]] = {}
        self._current: dict[str, Course] = {}
        for note in notes:
            self._load(note)

    def _load(self, note: Note) -> None:
        courses = self._past.setdefault(note.agent, {})
        match note.kind:
            case "once":
                self._once.add((note.agent, note.place, json.loads(note.data)))
            case "task":
                courses[note.place] = Course(note.place, json.loads(note.data))
            case "ended":
                courses[note.place].ended = True
            case _:
                courses[note.place].notes.append(note)

    def turns(self, agent: str) -> int:
        """Answers of the agent's model that are on record."""
        courses = self._past.get(agent, {}).values()
        return sum(note.kind == "turn" for course in courses for note in course.notes)

    def course(self, agent: str) -> Course:
        """The task that the agent works on."""
        return self._current[agent]

    def place(self, agent: str) -> str:
        return self._current[agent].place if agent in self._current else ""

    def is_replayed(self, agent: str) -> bool:
        """Whether what the agent does now has happened before."""
        return agent in self._current and self._current[agent].is_replayed

    def is_rehearsed(self, agent: str) -> bool:
        """Whether the agent is only taken through what it did before."""
        return agent in self._current and not self._current[agent].wanted

    def note(self, agent: str, kind: str, data: object) -> None:
        course = self._current[agent]
        note = Note(agent=agent, place=course.place, number=len(course.notes), kind=kind, data=_json(data))
        self._write(note)
        course.notes.append(note)
        course.heard += 1

    # -- TeamRecord --

    def model(self, agent: str, model: Model) -> Model:
        return RecordedModel(self, agent, model)

    def port(self, agent: str, port: AgentRuntime) -> AgentRuntime:
        return RecordedPort(self, agent, port, partial(self._register, agent))

    async def work(
        self, agent: str, place: str, task: str, carry_out: Callable[[str], Awaitable[AgentResponse]]
    ) -> AgentResponse:
        course = await self._remember(agent, place, task, carry_out)
        if course is None:
            course = Course(place, task)
            self._mark(course, agent, "task", task)
        self._current[agent] = course
        response = await carry_out(task)
        if not course.ended:
            self._mark(course, agent, "ended", "")
            course.ended = True
        return response

    async def once(
        self, agent: str, place: str, what: str, do: Callable[[], Awaitable[None]], again: Again
    ) -> None:
        if (agent, place, what) in self._once:
            again()
            return
        await do()
        self._write(Note(agent=agent, place=place, number=0, kind="once", data=_json(what)))
        self._once.add((agent, place, what))

    def called(self, agent: str, number: int) -> str:
        course = self._current[agent]
        return f"{course.place}/{agent}.{course.cells}.{number}"

    async def _remember(
        self, agent: str, place: str, task: str, carry_out: Callable[[str], Awaitable[AgentResponse]]
    ) -> Course | None:
        """Takes the agent through what it did in a process before this one; gives the course of this task, if any."""
        wanted: Course | None = None
        for course in self._past.pop(agent, {}).values():
            if course.place == place and course.task == task:
                wanted = course
                continue
            course.wanted = False
            self._current[agent] = course
            try:
                await carry_out(course.task)
            except _Forgotten:
                continue
        return wanted

    def _mark(self, course: Course, agent: str, kind: str, data: str) -> None:
        self._write(Note(agent=agent, place=course.place, number=0, kind=kind, data=_json(data)))


class RecordedModel(Model):
    """What a model has answered before comes from the record, in one piece, and costs nothing."""

    def __init__(self, record: RecordedTeam, agent: str, model: Model) -> None:
        self.model_id = model.model_id
        self._record = record
        self._agent = agent
        self._model = model

    def redact(self, text: str) -> str:
        return self._model.redact(text)

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        known = self._record.course(self._agent).next("turn")
        if known is not None:
            for chunk in _heard(known):
                yield chunk
            return
        pieces: list[str] = []
        finished = False
        try:
            async with aclosing(self._model.stream(messages)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, str):
                        pieces.append(chunk)
                    else:
                        finished = True
                        self._note("".join(pieces), chunk)
                    yield chunk
        except GeneratorExit:  # the agent has heard enough
            if not finished:
                self._note("".join(pieces), None)
            raise
        except ModelError as error:
            self._fail("".join(pieces), error)
            raise

    def _note(self, text: str, turn: ModelTurn | None) -> None:
        ending = None if turn is None else {**asdict(turn), "usage": asdict(turn.usage)}
        self._record.note(self._agent, "turn", {"text": text, "turn": ending})

    def _fail(self, text: str, error: ModelError) -> None:
        """Those failures are noted after which an agent goes on by itself; after others its task is over."""
        if isinstance(error, ContextLengthError | ModelInterruptedError):
            kind = "context" if isinstance(error, ContextLengthError) else "interrupted"
            told = {"text": text, "error": kind, "message": self.redact(error.message)}
            self._record.note(self._agent, "turn", told)


def _heard(known: dict[str, Any]) -> list[ModelChunk]:
    """The chunks of a turn on record. Raises the error that it ended with."""
    if known.get("error") == "context":
        raise ContextLengthError(known["message"])
    if known.get("error") == "interrupted":
        raise ModelInterruptedError(known["message"], known["text"])
    chunks: list[ModelChunk] = [known["text"]] if known["text"] else []
    if (turn := known["turn"]) is not None:
        usage = TokenUsage(**turn["usage"])
        chunks.append(ModelTurn(turn["text"], turn["finish_reason"], usage))
    return chunks


class RecordedPort(PortAround[AgentRuntime]):
    """What an agent's cells gave before comes from the record, and is not run."""

    def __init__(
        self,
        record: RecordedTeam,
        agent: str,
        inner: AgentRuntime,
        register: Callable[[Sequence[Injectable]], None],
    ) -> None:
        super().__init__(inner)
        self._record = record
        self._agent = agent
        self._register = register

    async def execute(
        self, code: str, *, timeout: float | None, on_output: OnOutput | None, cause: str = ""
    ) -> ExecutionResult:
        course = self._record.course(self._agent)
        course.cells += 1
        known = course.next("cell")
        if known is not None:
            return _result(known)
        result = await self.inner.execute(code, timeout=timeout, on_output=on_output, cause=cause)
        told = {"result": from_result(result).SerializeToString().hex(), "news": result.news}
        self._record.note(self._agent, "cell", told)
        return result

    async def inject(self, *items: Injectable) -> None:
        if self._record.course(self._agent).next("inject") is not None:
            self._register(items)
            return
        await self.inner.inject(*items)
        self._record.note(self._agent, "inject", [item.name for item in items])

    async def describe(self) -> Sequence[VariableInfo]:
        known = self._record.course(self._agent).next("look")
        if known is not None:
            return [_info(info) for info in known]
        described = list(await self.inner.describe())
        self._record.note(self._agent, "look", [asdict(info) for info in described])
        return described


def _result(known: dict[str, Any]) -> ExecutionResult:
    message = runtime_pb2.CellResult.FromString(bytes.fromhex(known["result"]))
    return replace(to_result(message), news=tuple(known["news"]))


def _info(known: dict[str, Any]) -> VariableInfo:
    shape = None if known["shape"] is None else tuple(known["shape"])
    return VariableInfo(**{**known, "shape": shape})


def _json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))
