"""Processes that work on teams and jobs, each a fork of one that has imported what they need.

The imports take half a second of CPU time otherwise, and most tests need several processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.prepared import Prepared, Started
from tests.support.processes import runs

from cenote.gateway.work import processes
from cenote.gateway.work.process_unsafe import OrchestratorProcess, environment, spawn
from cenote.gateway.work.settings import OrchestratorSettings

PROGRAM = "cenote.gateway.work.process"
LOOPS = ("cenote.gateway.teams.orchestrator", "cenote.gateway.jobs.runner")
CLIENT = ("httpx", "httpcore", "certifi", "anyio._backends._asyncio")
"""The client of models, which is loaded on first use."""


class _Fork:
    """One forked process, used like one of `subprocess`."""

    def __init__(self, started: Started, stdin: int) -> None:
        self._started = started
        self.pid = started.pid
        self.stdin = os.fdopen(stdin, "wb", buffering=0)

    @property
    def returncode(self) -> int | None:
        return self._started.returncode

    def wait(self) -> int:
        return self._started.wait()

    def kill(self) -> None:
        self._started.send_signal(signal.SIGKILL)


class ForkedWorks:
    """The processes of the platform in this folder. Those of other platforms start normally."""

    def __init__(self, folder: Path, prepared: Prepared) -> None:
        self._folder = folder
        self._prepared = prepared
        self._began: list[tuple[str, int]] = []
        """Their kinds and pids."""

    def working(self, kind: str) -> list[int]:
        return [pid for work, pid in self._began if work == kind and runs(pid)]

    def spawn(self, settings: str, log: Path, allowed: Collection[str]) -> OrchestratorProcess:
        """Replaces `process_unsafe.spawn`."""
        wanted = OrchestratorSettings.from_json(settings)
        if wanted.state.path != self._folder:
            return spawn(settings, log, allowed)
        stdin, ours = os.pipe()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            streams = (stdin, output, output)
            started = self._prepared.start((settings,), streams, environment(allowed), Path("/"))
        finally:
            os.close(stdin)
            os.close(output)
        self._began.append((wanted.kind, started.pid))
        return OrchestratorProcess(_Fork(started, ours))  # type: ignore[arg-type]


@contextmanager
def forked_works(folder: Path) -> Iterator[ForkedWorks]:
    """For platforms that are opened in that folder meanwhile. On SIGABRT the processes print the stack of each
    thread."""
    with pytest.MonkeyPatch.context() as patch:
        with pytest.MonkeyPatch.context() as before:
            before.setenv("PYTHONFAULTHANDLER", "1")
            prepared = Prepared(PROGRAM, *LOOPS, *CLIENT)
        with closing(prepared):
            works = ForkedWorks(folder, prepared)
            patch.setattr(processes, "spawn", works.spawn)
            yield works
