"""A platform without Ray in this process, a model server that counts its calls, and processes that may be killed."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.fakes.openai_server import OpenAIServer, Reply, Request, answer, refusal
from tests.support.orchestrator.forked_works import PROGRAM, ForkedWorks
from tests.support.processes import everyone, kill, title
from tests.waiting import PATIENCE, until

import cenote
from cenote.connection import Platform
from cenote.gateway.jobs import tables
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import platform
from cenote.gateway.store.state_folder import StateFolder
from cenote.platform_team import ModelSpec, PlatformTeam


class Scripts(OpenAIServer):
    """Each model answers by its own script. The test releases answers that are delayed."""

    def __init__(self) -> None:
        super().__init__(())
        self.lines: dict[str, list[str]] = {}
        self.calls: Counter[str] = Counter()
        self.asked: list[Request] = []
        self._gates: dict[tuple[str, int], threading.Event] = {}

    def script(self, **lines: list[str]) -> None:
        self.lines.update(lines)

    def hold(self, model: str, turn: int) -> threading.Event:
        """The answer of that number, from 1, waits until this is set."""
        return self._gates.setdefault((model, turn), threading.Event())

    def take(self, request: Request) -> Reply:
        """By the number of the model's own answers in the conversation, so a repeated request gets the same one."""
        model, messages = request.body["model"], request.body["messages"]
        turn = 1 + sum(message["role"] == "assistant" for message in messages)
        with self._lock:
            self.asked.append(request)
            self.calls[model] += 1
        if (gate := self._gates.get((model, turn))) is not None:
            gate.wait(PATIENCE)
        lines = self.lines.get(model, [])
        return answer(lines[turn - 1]) if turn <= len(lines) else refusal(418)


@dataclass
class Studio:
    """folder: of the platform's state. `open` it, and `close` it.

    works: its processes, where they do not start normally. spare: whether one waits for the next job.
    """

    folder: Path
    models: Scripts
    port: int = 0
    works: ForkedWorks | None = None
    spare: bool = False
    _opened: ExitStack = field(default_factory=ExitStack)

    def open(self, **options: object) -> Studio:
        given = {"without_ray": True, "no_http": True, "model_endpoints": (self.models.url,), **options}
        made = PlatformOptions(state=StateFolder(path=self.folder), port=self.port, **given)  # type: ignore
        with pytest.MonkeyPatch.context() as patch:
            if not self.spare:  # not for longer: other studios of this process may have one
                patch.setattr(tables, "EXPECTED", 0.0)
            running = self._opened.enter_context(platform(made))
        self.address = running.address
        self.port = int(running.address.rpartition(":")[2])
        return self

    def close(self) -> None:
        self._opened.close()

    def connect(self) -> Platform:
        return cenote.connect(self.address)

    def team(self, name: str = "pipeline", **settings: object) -> PlatformTeam:
        return self.connect().team(name, **settings)  # type: ignore[arg-type]

    def model(self, name: str, **more: object) -> ModelSpec:
        return ModelSpec(name=name, base_url=self.models.url, **more)  # type: ignore[arg-type]

    def orchestrators(self) -> list[int]:
        """Processes of this platform that work on teams."""
        return self.working("team")

    def working(self, kind: str) -> list[int]:
        if self.works is not None:
            return self.works.working(kind)
        wanted = f'"state": "{self.folder}", "kind": "{kind}"'
        return [pid for pid in everyone() if PROGRAM in (line := title(pid)) and wanted in line]

    def only(self, kind: str) -> int:
        """The only process for works of that kind. Another one whose work is done may be about to end."""
        return until(lambda: found if len(found := self.working(kind)) == 1 else [])[0]

    def kill_orchestrator(self) -> None:
        kill(self.only("team"))

    def last_words(self) -> str:
        """The platform's log, after each process that still works on a team has written the stacks of its threads."""
        for pid in self.orchestrators():
            kill(pid, how=signal.SIGABRT)
        return StateFolder(path=self.folder).log.read_text(errors="replace")[-20_000:]


def code(text: str) -> str:
    return f"```python\n{text}\n```"
