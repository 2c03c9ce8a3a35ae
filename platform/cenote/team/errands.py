"""What sub-agents do for their parent: it begins and ends within a run of the parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from cenote.agent import AgentBusyError
from cenote_security.errors import UsageError


class Errands:
    """The runs of sub-agents that a parent's code has started and that have not ended. One event loop's."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._open = False

    @asynccontextmanager
    async def allowed(self) -> AsyncGenerator[None, None]:
        """While the parent works; what is left then is cancelled, and has ended after the block.

        A cell ends some time before the calls that it has left behind do.

        Raises AgentBusyError in another such block.
        """
        if self._open:
            raise AgentBusyError
        self._open = True
        try:
            yield
        finally:
            self._open = False
            await self._stop()

    @contextmanager
    def errand(self) -> Generator[None, None, None]:
        """The current task is one. Raises UsageError where code of the parent's jail calls that nobody waits for."""
        if not self._open:
            raise UsageError("a sub-agent works only while its parent works on a task")
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        self._tasks.add(current)
        try:
            yield
        finally:
            self._tasks.discard(current)

    async def _stop(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
