"""One cell at a time, in order of arrival; an author cannot stop another's."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.waiting import PATIENCE, until

from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote_security.errors import RuntimeClosedError

pytestmark = pytest.mark.usefixtures("where", "patient")

Start = Callable[..., Any]


@pytest.mark.at("embedded", "platform", "relayed")
def test_cells_run_in_the_order_in_which_they_came(
    runtime: PythonRuntime, good: Callable, gate: Any, start: Start
) -> None:
    """No author goes before another who asked earlier."""
    authors = [runtime.attach(f"author {number}") for number in range(4)]
    good(authors[0], "order = []")
    first = start(authors[0], "gate()")
    turns = [1, 2, 3, 1, 1, 0, 2, 3, 0, 1]
    waiting = [start(authors[number], f"order.append({number})", waits=True) for number in turns]
    gate.opened.set()
    assert all(future.result(PATIENCE).success for future in (first, *waiting))
    assert turns == runtime.retrieve("order")


@pytest.mark.at("embedded", "platform", "relayed")
def test_status_is_answered_while_a_cell_runs(runtime: PythonRuntime, gate: Any, start: Start) -> None:
    """It names the cell's author, to every author."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    cell = start(ana, "gate()")
    assert [(1, "ana")] * 3 == [(s.step, s.author) for s in (who.status() for who in (runtime, ana, ben))]
    gate.opened.set()
    cell.result(PATIENCE)
    assert (None, "") == (ben.status().step, ben.status().author)


@pytest.mark.at("embedded", "platform")
def test_a_question_does_not_wait_for_others_cells(
    runtime: PythonRuntime, good: Callable, gate: Any, start: Start, waiting: Callable[[], int]
) -> None:
    """It waits for the running cell, and for the author's own cells, since it may concern their results."""
    ana, ben, eva = (runtime.attach(name) for name in ("ana", "ben", "eva"))
    good(runtime, "x = 0")
    running = start(ana, "gate()")
    bens = start(ben, "x = 1", waits=True)
    with ThreadPoolExecutor(2) as pool:
        by_eva = pool.submit(eva.retrieve, "x")
        until(lambda: waiting() == 2)
        by_ben = pool.submit(ben.retrieve, "x")
        until(lambda: waiting() == 3)
        gate.opened.set()
        assert (0, 1) == (by_eva.result(PATIENCE), by_ben.result(PATIENCE))
    assert all(future.result(PATIENCE).success for future in (running, bens))


def test_an_author_interrupts_only_their_own(runtime: PythonRuntime, gate: Any, start: Start) -> None:
    """Another attachment with the same name does not either; the owner does."""
    ana, twin, ben = runtime.attach("ana"), runtime.attach("ana"), runtime.attach("ben")
    for _ in range(2):
        cell = start(ana, "gate()\n'went on'")
        assert [False, False] == [twin.interrupt(), ben.interrupt()]
        assert not cell.done()
        assert ana.interrupt()
        assert "interrupt" == cell.result(PATIENCE).error.reason
        gate.reached.clear()
    cell = start(ana, "gate()")
    assert runtime.interrupt()
    assert "interrupt" == cell.result(PATIENCE).error.reason
    assert not ana.interrupt()


@pytest.mark.at("embedded", "platform")
def test_an_interrupt_does_not_reach_what_waits(runtime: PythonRuntime, gate: Any, start: Start) -> None:
    """The author's own next cell runs."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    running = start(ana, "gate()")
    waiting = [start(ben, "'ben'", waits=True), start(ana, "'ana'", waits=True)]
    assert ana.interrupt()
    assert "interrupt" == running.result(PATIENCE).error.reason
    assert ["'ben'", "'ana'"] == [future.result(PATIENCE).value for future in waiting]


def test_who_leaves_takes_back_what_waits(runtime: PythonRuntime, gate: Any, start: Start) -> None:
    """A caller that waits for such a cell gets the result that nothing ran; the cells of others continue."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    running = start(ben, "gate()\n'ben'")
    taken_back = [start(ana, "x = 1", waits=True) for _ in range(3)]
    others = start(ben, "'x' in globals()", waits=True)
    ana.close()
    for future in taken_back:
        with pytest.raises(RuntimeClosedError, match="nothing ran"):
            future.result(PATIENCE)
    assert not running.done()
    gate.opened.set()
    assert ["'ben'", "False"] == [running.result(PATIENCE).value, others.result(PATIENCE).value]


def test_who_leaves_stops_what_runs(runtime: PythonRuntime, good: Callable, gate: Any, start: Start) -> None:
    """Their cell is interrupted, the namespace stays."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    running = start(ana, "kept = 1\ngate()\nkept = 2")
    waiting = start(ben, "kept", waits=True)
    ana.close()
    assert "interrupt" == running.result(PATIENCE).error.reason
    assert "1" == waiting.result(PATIENCE).value


def test_a_forked_process_stops_nothing(runtime: PythonRuntime, gate: Any, start: Start) -> None:
    """What a child of this process releases at its end stays usable for the parent."""
    ana = runtime.attach("ana")
    cell = start(ana, "gate()\n'went on'")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(round(PATIENCE))
            ana.close()
            status = 0
        finally:
            os._exit(status)
    assert 0 == os.waitpid(child, 0)[1]
    assert 1 == runtime.status().step
    gate.opened.set()
    assert "'went on'" == cell.result(PATIENCE).value


@pytest.mark.at("embedded", "platform")
async def test_cancelling_a_call_stops_its_cell_alone() -> None:
    """A task that is cancelled while its cell waits withdraws it; other authors are not affected."""
    async with AsyncPythonRuntime() as runtime:
        ana, ben = await runtime.attach("ana"), await runtime.attach("ben")
        heard = asyncio.Event()
        code = "print('go')\nimport asyncio\nawait asyncio.sleep(600)"
        running = asyncio.create_task(ben.execute(code, on_output=lambda *_: heard.set()))
        await asyncio.wait_for(heard.wait(), PATIENCE)
        waiting = asyncio.create_task(ana.execute("ran = True"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert 1 == (await ana.status()).step
        assert await ben.interrupt()
        assert "interrupt" == (await running).error.reason
        assert "False" == (await ana.execute("'ran' in globals()")).value
