"""What waits for room on a machine: for how long, in which number, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.waiting import until_async

from cenote.gateway.api import creations
from cenote.gateway.api.creations import RoomQueue
from cenote_worker.node.placement import NoRoomError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creations, "LOOK_EVERY", 0.001)


class Machine:
    """With room or without."""

    def __init__(self) -> None:
        self.room = False
        self.tries = 0

    async def take(self) -> str:
        self.tries += 1
        if not self.room:
            raise NoRoomError("full")
        return "made"


async def test_what_finds_room_does_not_wait() -> None:
    machine, queue = Machine(), RoomQueue()
    machine.room = True
    assert "made" == await queue.carry_out(machine.take)
    assert 1 == machine.tries


async def test_what_finds_none_waits_and_is_counted_until_there_is_some() -> None:
    """With all that stand behind it for their turn."""
    machine, queue = Machine(), RoomQueue(patience=60)
    queue.behind = lambda: 3
    assert 0 == queue.lacking
    waiting = asyncio.ensure_future(queue.carry_out(machine.take))
    await until_async(lambda: machine.tries > 2)
    assert 4 == queue.lacking
    machine.room = True
    assert "made" == await waiting
    assert 0 == queue.lacking


@pytest.mark.parametrize("patience", [0.0, 0.01])
async def test_the_wait_ends_with_an_error_that_says_how_long_it_was(patience: float) -> None:
    machine, queue = Machine(), RoomQueue(patience)
    with pytest.raises(NoRoomError, match="full; none had room for 0.01 s" if patience else "^full$"):
        await queue.carry_out(machine.take)
    assert 0 == queue.lacking


async def test_the_time_counts_from_when_it_stood_in_line() -> None:
    machine, queue = Machine(), RoomQueue(patience=60)
    with pytest.raises(NoRoomError):
        await queue.carry_out(machine.take, since=asyncio.get_running_loop().time() - 61)
    assert 1 == machine.tries


@pytest.mark.parametrize("leave", [lambda task: task.cancel(), lambda _task: None], ids=["cancelled", "left"])
async def test_what_is_not_wanted_any_more_is_not_counted(
    leave: Callable[[asyncio.Task[str]], object],
) -> None:
    machine, queue, wanted = Machine(), RoomQueue(patience=60), [True]

    async def work() -> Awaitable[str] | str:
        return await queue.carry_out(machine.take, is_wanted=lambda: wanted[0])

    waiting: asyncio.Task[str] = asyncio.create_task(work())  # type: ignore[arg-type]
    await until_async(lambda: queue.lacking)
    leave(waiting)
    wanted[0] = False
    with pytest.raises((NoRoomError, asyncio.CancelledError)):
        await waiting
    assert 0 == queue.lacking
