"""An agent that prints what it does, also when another agent's code runs it."""

from __future__ import annotations

import time

from cenote.agent import AgentResponse, CaveAgent, ExecutionStatus, StoppedEvent, StopReason
from cenote.demo.ledger import AgentRow
from cenote.demo.meter import MeteredModel
from cenote.models import Model
from cenote.runtime import PythonRuntime
from cenote.terminal.screen import Screen
from cenote.terminal.transcript import Transcript


class NarratedAgent(CaveAgent):
    """A CaveAgent with a name, a transcript and a meter."""

    def __init__(
        self, name: str, model: Model, runtime: PythonRuntime, screen: Screen, instructions: str
    ) -> None:
        self.name = name
        self._meter = MeteredModel(model)
        self._seconds = 0.0
        self._transcript = Transcript(screen, name)
        super().__init__(self._meter, runtime=runtime, instructions=instructions, max_steps=12)

    async def run(self, task: str) -> AgentResponse:
        started = time.perf_counter()
        content, status, code = "", ExecutionStatus.MAX_STEPS_REACHED, []
        async for event in self.stream_events(task):
            self._transcript.show(event)
            if event.type.value == "code":
                code.append(event.content)
            if event.type.value == "final_response":
                content = event.content
            if isinstance(event, StoppedEvent) and event.stop_reason is StopReason.COMPLETED:
                status = ExecutionStatus.SUCCESS
        self._seconds += time.perf_counter() - started
        return AgentResponse(
            content=content, status=status, code_snippets=code, steps_taken=self._meter.calls
        )

    def row(self) -> AgentRow:
        """What this agent has cost so far."""
        meter = self._meter
        return AgentRow(
            name=self.name,
            calls=meter.calls,
            usage=meter.usage,
            prompt_bytes=meter.prompt_bytes,
            seconds=self._seconds,
        )
