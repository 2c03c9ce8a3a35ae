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
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cenote.agent import AgentResponse, AgentRuntime
from cenote.gateway.teams.course import Course, ForgottenError, Write, as_text
from cenote.gateway.teams.ledger import Note
from cenote.gateway.teams.recorded_model import RecordedModel
from cenote.gateway.teams.recorded_port import RecordedPort
from cenote.models import Model
from cenote.runtime.injectables import Injectable
from cenote.team.record import Again, Do
from cenote_security.errors import NameExistsError

Register = Callable[[str, Sequence[Injectable]], None]


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
                courses[note.place] = self._course_of(note.agent, note.place, json.loads(note.data))
                courses[note.place].in_doubt = True
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
        except NameExistsError:  # done by a process that was killed before it could write that down
            await rest()
        self._write(Note(agent=agent, place=place, number=0, kind="once", data=as_text(what)))
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
            except ForgottenError:
                continue
        return wanted

    def _course_of(self, agent: str, place: str, task: str) -> Course:
        return Course(agent=agent, place=place, task=task, write=self._write)
