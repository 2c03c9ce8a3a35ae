"""A serial executor: tasks run in order, on a thread that exists as long as there are any."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cenote_worker.serving.served_runtime import SerialExecutor


async def test_one_after_the_other() -> None:
    """Each returns its result, or raises its error; the loop runs meanwhile."""
    lane, held, done = SerialExecutor(asyncio.get_running_loop()), threading.Event(), list[int]()

    def fail() -> None:
        done.append(2)
        raise LookupError

    first = lane.carry_out(lambda: held.wait() and done.append(1))
    second, third = lane.carry_out(fail), lane.carry_out(lambda: 3)
    assert not first.done()
    held.set()
    assert 3 == await third
    assert [1, 2] == done
    with pytest.raises(LookupError):
        await second
    assert 4 == await lane.carry_out(lambda: 4)


async def test_what_has_not_begun_is_not_carried_out() -> None:
    """Once the executor is closed; a running task finishes."""
    lane, begun, held = SerialExecutor(asyncio.get_running_loop()), threading.Event(), threading.Event()
    running = lane.carry_out(lambda: begun.set() or held.wait())
    waiting = lane.carry_out(lambda: 1)
    await asyncio.to_thread(begun.wait)
    lane.close()
    held.set()
    assert await running
    assert waiting.cancelled()
