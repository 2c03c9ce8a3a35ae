"""A process beside a namespace, in two faces: for threads that wait, and for coroutines that await."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Final, Self

from cenote.runtime.core.listeners import LOOK_UP
from cenote.runtime.core.processes import (
    ProcessFeed,
    ProcessResult,
    input_bytes,
    resize,
    result_of,
    signal_number,
)
from cenote_worker.execution.programs import KeptOutput, ProgramOrder
from cenote_worker.execution.results import StreamName
from cenote_worker.supervisor.program import ProgramHandle, ProgramListener

Begin = Callable[[ProgramOrder, ProgramListener], ProgramHandle]
AsyncBegin = Callable[[ProgramOrder, ProgramListener], Awaitable[ProgramHandle]]

_BOTH: Final[tuple[StreamName, StreamName]] = ("stdout", "stderr")


class _Held:
    """What both faces know of a process."""

    def __init__(self, handle: ProgramHandle, feed: ProcessFeed, keep: int) -> None:
        """keep: bytes of each stream for the result of `wait`."""
        self._handle = handle
        self._feed = feed
        self._rest: dict[StreamName, KeptOutput] = {"stdout": KeptOutput(keep), "stderr": KeptOutput(keep)}

    @property
    def running(self) -> bool:
        """Whether it has not ended yet. Output may still be there to be read when it has."""
        return self._feed.outcome is None

    def close_stdin(self) -> None:
        """It reads the end of its input once it has read what was sent; at a terminal it gets `^D`."""
        self._handle.close_input()

    def signal(self, number: int | str) -> None:
        """Sends a signal, such as 15 or "TERM", to the process and what it has started in its own session's group."""
        self._handle.signal(signal_number(number))

    def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size; without one nothing happens."""
        resize(self._handle, rows, columns)

    def kill(self) -> None:
        """Ends it and all that it has started, whatever they ignore."""
        self._handle.kill()

    def _taken(self, *streams: StreamName) -> tuple[StreamName, bytes] | None:
        found, resumed = self._feed.take(*streams)
        if resumed:
            self._handle.resume()
        return found

    def _result(self) -> ProcessResult:
        assert self._feed.outcome is not None
        return result_of(self._feed.outcome, self._rest)


class Process(_Held):
    """A process that was spawned. Iterating over it gives `(stream, bytes)` as they come, until it has ended.

    Output that is not read makes the process wait, once a mebibyte of it is there; `wait` reads it. Leaving a `with`
    block ends the process.
    """

    def __init__(self, handle: ProgramHandle, feed: ProcessFeed, keep: int) -> None:
        super().__init__(handle, feed, keep)
        self._news = threading.Condition()
        feed.wakes(self._wake)
        self.stdout = ProcessStream(self, "stdout")
        self.stderr = ProcessStream(self, "stderr")

    @property
    def pid(self) -> int:
        """As the jail sees it. Waits until it runs."""
        self._await(lambda: self._feed.pid or self._feed.outcome)
        return self._feed.pid

    def send_input(self, data: bytes | str) -> None:
        """Writes to its input; text as UTF-8. Waits until the process, or its pipe, has room for it.

        Raises UsageError when it takes no input, or has ended.
        """
        done = threading.Event()
        errors: list[Exception] = []

        def taken(error: Exception | None) -> None:
            errors.extend([] if error is None else [error])
            done.set()

        self._handle.write(input_bytes(data), taken)
        while not done.wait(LOOK_UP):
            pass
        if errors:
            raise errors[0]

    def wait(self, timeout: float | None = None) -> ProcessResult:
        """Its result, with all output that was not read otherwise. Raises TimeoutError when it goes on for longer."""
        if not self._read_out(timeout):
            raise TimeoutError(f"the process goes on after {timeout:g} s; wait again, or `kill` it")
        return self._result()

    def _read_out(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            while (found := self._taken(*_BOTH)) is not None:
                self._rest[found[0]].add(found[1])
            if self._feed.outcome is not None and not self._feed.has(*_BOTH):
                return True
            if not self._await(lambda: self._feed.has(*_BOTH) or self._feed.outcome, deadline):
                return False

    def __iter__(self) -> Iterator[tuple[StreamName, bytes]]:
        while (found := self._next(*_BOTH)) is not None:
            yield found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()
        self._await(lambda: self._feed.outcome)

    def _next(self, *streams: StreamName) -> tuple[StreamName, bytes] | None:
        while True:
            if (found := self._taken(*streams)) is not None:
                return found
            if self._feed.outcome is not None:
                return self._taken(*streams)
            self._await(lambda: self._feed.has(*streams) or self._feed.outcome)

    def _await(self, condition: Callable[[], object], deadline: float | None = None) -> bool:
        with self._news:
            while not condition():
                left = LOOK_UP if deadline is None else min(deadline - time.monotonic(), LOOK_UP)
                if left <= 0:
                    return False
                self._news.wait(left)
        return True

    def _wake(self) -> None:
        with self._news:
            self._news.notify_all()


class ProcessStream:
    """One stream of a process, as bytes."""

    def __init__(self, process: Process, name: StreamName) -> None:
        self._process = process
        self._name = name

    def read_some(self) -> bytes:
        """What has come, at least a byte; waits for it. Empty at the end."""
        found = self._process._next(self._name)
        return b"" if found is None else found[1]

    def read(self) -> bytes:
        """All that comes until the end."""
        return b"".join(self)

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read_some():
            yield data


class AsyncProcess(_Held):
    """A process that was spawned; see Process. `async for` gives `(stream, bytes)` as they come."""

    def __init__(self, handle: ProgramHandle, feed: ProcessFeed, keep: int) -> None:
        super().__init__(handle, feed, keep)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        feed.wakes(self._wake)
        self.stdout = AsyncProcessStream(self, "stdout")
        self.stderr = AsyncProcessStream(self, "stderr")

    async def pid(self) -> int:
        """As the jail sees it. Waits until it runs."""
        await self._await(lambda: self._feed.pid or self._feed.outcome)
        return self._feed.pid

    async def send_input(self, data: bytes | str) -> None:
        """Writes to its input; see Process.send_input."""
        future: asyncio.Future[Exception | None] = self._loop.create_future()

        def settle(error: Exception | None) -> None:
            if not future.done():
                future.set_result(error)

        def taken(error: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(settle, error)

        self._handle.write(input_bytes(data), taken)
        if (error := await future) is not None:
            raise error

    async def wait(self, timeout: float | None = None) -> ProcessResult:
        """Its result; see Process.wait."""
        try:
            async with asyncio.timeout(timeout):
                async for stream, data in self:
                    self._rest[stream].add(data)
        except TimeoutError:
            raise TimeoutError(f"the process goes on after {timeout:g} s; wait again, or `kill` it") from None
        return self._result()

    async def __aiter__(self) -> AsyncIterator[tuple[StreamName, bytes]]:
        while (found := await self._next(*_BOTH)) is not None:
            yield found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, *_exception: type[BaseException] | BaseException | TracebackType | None
    ) -> None:
        self.kill()
        await self._await(lambda: self._feed.outcome)

    async def _next(self, *streams: StreamName) -> tuple[StreamName, bytes] | None:
        while True:
            if (found := self._taken(*streams)) is not None:
                return found
            if self._feed.outcome is not None:
                return self._taken(*streams)
            await self._await(lambda: self._feed.has(*streams) or self._feed.outcome)

    async def _await(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._news.clear()
            if not condition():
                await self._news.wait()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed; no caller waits any more
            self._loop.call_soon_threadsafe(self._news.set)


class AsyncProcessStream:
    """One stream of a process, as bytes."""

    def __init__(self, process: AsyncProcess, name: StreamName) -> None:
        self._process = process
        self._name = name

    async def read_some(self) -> bytes:
        """What has come, at least a byte; waits for it. Empty at the end."""
        found = await self._process._next(self._name)
        return b"" if found is None else found[1]

    async def read(self) -> bytes:
        """All that comes until the end."""
        return b"".join([data async for data in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read_some():
            yield data


def run(begin: Begin, asked: ProgramOrder, stdin: bytes | str | None, keep: int) -> ProcessResult:
    """Begins a process and waits for its end, which the end of this wait brings about."""
    data = None if stdin is None else input_bytes(stdin)
    feed, ended = ProcessFeed(keep), threading.Event()
    feed.wakes(lambda: ended.set() if feed.outcome is not None else None)
    handle = begin(asked, feed)
    try:
        _feed(handle, data)
        while not ended.wait(LOOK_UP):
            pass
    except BaseException:
        handle.kill()
        raise
    assert feed.outcome is not None
    return result_of(feed.outcome, feed.kept())


async def run_async(
    begin: AsyncBegin, asked: ProgramOrder, stdin: bytes | str | None, keep: int
) -> ProcessResult:
    """As `run`."""
    data = None if stdin is None else input_bytes(stdin)
    loop = asyncio.get_running_loop()
    feed, ended = ProcessFeed(keep), asyncio.Event()

    def wake() -> None:
        if feed.outcome is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed; no caller waits any more
                loop.call_soon_threadsafe(ended.set)

    feed.wakes(wake)
    handle = await begin(asked, feed)
    try:
        _feed(handle, data)
        await ended.wait()
    except BaseException:
        handle.kill()
        raise
    assert feed.outcome is not None
    return result_of(feed.outcome, feed.kept())


def _feed(handle: ProgramHandle, data: bytes | None) -> None:
    """A process that reads less than it is given has just not read it."""
    if data:
        handle.write(data, lambda _error: None)
    if data is not None:
        handle.close_input()
