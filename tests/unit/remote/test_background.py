"""The event loop of everything remote: no caller waits for ever on it, no result is lost on it."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from tests.waiting import PATIENCE, until

from cenote.runtime.remote.background import background
from cenote_security.errors import UnavailableError


def test_all_threads_share_one() -> None:
    """However many start it at the same time."""
    found: list[object] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        found.append(background())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [background()] * 8 == found


def test_results_and_errors_come_out() -> None:
    """As if the work had been done in the caller; a TimeoutError of the work's own stays one."""

    async def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 5

    assert 5 == background().wait(work(None), PATIENCE, "work")
    for error in (KeyError("x"), TimeoutError("mine")):
        with pytest.raises(type(error)):
            background().wait(work(error), PATIENCE, "work")


def test_patience_ends() -> None:
    """Work that takes too long is cancelled, and the error names it."""
    cancelled = threading.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(UnavailableError, match=r"longer than 0.05 s to think; try again"):
        background().wait(slow(), 0.05, "think")
    assert cancelled.wait(PATIENCE)


def test_faults_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Work without a waiting caller does not fail silently; a platform's refusal is not logged as a fault."""

    async def fail(error: Exception) -> None:
        raise error

    with caplog.at_level(logging.ERROR, "cenote.remote"):
        background().post(lambda: background().spawn(fail(UnavailableError("not now"))))
        background().post(lambda: background().spawn(fail(KeyError("a fault"))))
        until(lambda: bool(caplog.records))
    assert ["a fault"] == [record.exc_info[1].args[0] for record in caplog.records if record.exc_info]


def test_it_knows_itself() -> None:
    """Code on the loop must not wait for it."""
    seen: list[bool] = []
    background().post(lambda: seen.append(background().is_here))
    until(lambda: bool(seen))
    assert ([True], False) == (seen, background().is_here)
