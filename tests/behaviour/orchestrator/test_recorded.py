"""The record of a team by itself: agents that replay it do nothing twice, and continue where it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

import pytest

from cenote.agent import AgentResponse, AgentRuntime, CaveAgent
from cenote.gateway.teams.ledger import Note
from cenote.gateway.teams.replay import RecordedTeam
from cenote.models import ContextLengthError, Message, Model, ModelChunk, ScriptedModel
from cenote.runtime import AsyncPythonRuntime, Variable
from cenote_security.errors import NameExistsError, UsageError
from cenote_security.policy import SandboxPolicy

BARE = SandboxPolicy(preload=(), memory="256MiB")


def code(text: str) -> str:
    return f"```python\n{text}\n```"


class Recorded:
    """A runtime whose port is recorded."""

    def __init__(self, runtime: AsyncPythonRuntime, record: RecordedTeam) -> None:
        self.port = record.port("a", runtime.port)


class Cut(Exception):
    """Stands for a killed process."""


class Cutting(Model):
    """Fails at its call of that number, from 1."""

    def __init__(self, model: Model, at: int) -> None:
        self.model_id, self._model, self._left = model.model_id, model, at

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        self._left -= 1
        if not self._left:
            raise Cut
        async for chunk in self._model.stream(messages):
            yield chunk


SCRIPT = [code("n = globals().get('n', 0) + 1"), code("n += 10\nprint(n)"), code("m = n"), "All done."]


async def work(notes: list[Note], runtime: AsyncPythonRuntime, model: Model, task: str = "Go") -> Any:
    record = RecordedTeam(list(notes), notes.append, lambda _agent, _items: None)
    agent = CaveAgent(record.model("a", model), Recorded(runtime, record))
    return agent, await record.work("a", "lead", task, agent.run)


@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_killed_at_any_model_call(at: int) -> None:
    """Each model call and cell happens once, and the conversation is the same as without a kill."""
    async with AsyncPythonRuntime(sandbox=BARE) as runtime:
        notes: list[Note] = []
        script = ScriptedModel(SCRIPT)
        with pytest.raises(Cut):
            await work(notes, runtime, Cutting(script, at))
        agent, response = await work(notes, runtime, script)
        assert ("All done.", 11) == (response.content, await runtime.retrieve("m"))
        assert 4 == len(script.prompts)
        assert list(script.prompts[-1]) == agent.messages[:-1]


async def test_a_finished_task_is_heard_once_more() -> None:
    """Its recorded answer is returned, no model is called, and the agent remembers it in its next task."""
    async with AsyncPythonRuntime(sandbox=BARE) as runtime:
        notes: list[Note] = []
        await work(notes, runtime, ScriptedModel(SCRIPT))
        silent = ScriptedModel([])
        _, response = await work(notes, runtime, silent)
        assert ("All done.", 0) == (response.content, len(silent.prompts))
        record = RecordedTeam(list(notes), notes.append, lambda _agent, _items: None)
        further = ScriptedModel(["And more."])
        agent = CaveAgent(record.model("a", further), Recorded(runtime, record))
        assert "And more." == (await record.work("a", "next", "More", agent.run)).content
        assert "All done." in [message.content for message in further.prompts[0]]


async def test_another_task_at_the_same_place_begins_anew() -> None:
    """The first task's record does not answer the second task."""
    async with AsyncPythonRuntime(sandbox=BARE) as runtime:
        notes: list[Note] = []
        await work(notes, runtime, ScriptedModel(["One."]))
        _, response = await work(notes, runtime, ScriptedModel(["Two."]), task="Another")
        assert "Two." == response.content


async def test_failures_that_an_agent_survives() -> None:
    """They are replayed where they occurred, because the agent's reaction follows from them."""
    async with AsyncPythonRuntime(sandbox=BARE) as runtime:
        notes: list[Note] = []
        script = ScriptedModel([code("print('x' * 100)"), ContextLengthError("too long"), "Short.", "Well."])
        await work(notes, runtime, script)
        assert 1 == sum("context" in note.data for note in notes if note.kind == "turn")
        silent = ScriptedModel([])
        await work(notes, runtime, silent)
        assert 0 == len(silent.prompts)


async def test_a_record_that_does_not_fit() -> None:
    """A program that does something else than recorded raises an error, and does nothing."""
    notes = [
        Note(agent="a", place="lead", number=0, kind="task", data='"Go"'),
        Note(agent="a", place="lead", number=0, kind="cell", data="{}"),
    ]
    async with AsyncPythonRuntime(sandbox=BARE) as runtime:
        with pytest.raises(UsageError, match="does not fit"):
            await work(notes, runtime, ScriptedModel(["x"]))


async def test_once() -> None:
    """A change to a namespace is not repeated; the existing one is used."""
    notes: list[Note] = []
    done: list[str] = []

    async def do(what: str) -> None:
        done.append(what)

    for _ in range(2):
        record = RecordedTeam(list(notes), notes.append, lambda _agent, _items: None)
        await record.once(
            "a", "p", "put x", partial(do, "do"), lambda: done.append("again"), partial(do, "rest")
        )
    assert ["do", "again"] == done


async def test_once_where_it_was_not_written_down() -> None:
    """A process was killed in between: what is missing is done, and that is recorded."""
    notes: list[Note] = []
    done: list[str] = []

    async def do() -> None:
        raise NameExistsError("x")

    async def rest() -> None:
        done.append("rest")

    for _ in range(2):
        record = RecordedTeam(list(notes), notes.append, lambda _agent, _items: None)
        await record.once("a", "p", "put x", do, lambda: done.append("again"), rest)
    assert ["rest", "again"] == done


async def test_what_was_put_there_and_not_written_down() -> None:
    """In the middle of a task: existing values are used, and the rest is put next to them. Only the first call after
    the record can have been carried out; a name of a later call is an error.
    """
    notes: list[Note] = []
    registered: list[str] = []

    def taken_up(notes: list[Note]) -> RecordedTeam:
        return RecordedTeam(
            list(notes), notes.append, lambda _agent, items: registered.extend(item.name for item in items)
        )

    async def put(port: AgentRuntime, *names: str) -> AgentResponse:
        await port.inject(*(Variable(name, 1) for name in names))
        return AgentResponse(content="")

    async with AsyncPythonRuntime(sandbox=BARE) as runtime:
        first = taken_up(notes)
        await first.work("a", "lead", "Go", lambda _task: put(first.port("a", runtime.port), "x"))
        notes = [note for note in notes if note.kind == "task"]  # no more had been written
        second = taken_up(notes)
        await second.work("a", "lead", "Go", lambda _task: put(second.port("a", runtime.port), "x", "y"))
        assert ["x"] == registered
        assert (True, "2") == (
            (result := await runtime.execute("x + y")).success,
            result.value,
        )
        with pytest.raises(NameExistsError):
            await second.work("a", "next", "Go", lambda _task: put(second.port("a", runtime.port), "x"))
