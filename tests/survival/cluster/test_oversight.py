"""Quotas and the audit log over processes that serve runtimes: counted together, recorded once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import PATIENCE, until

from cenote.runtime import PythonRuntime
from cenote_security.errors import QuotaExceededError

LONG = "import time\nbegun = True\nprint('begun', flush=True)\nfor _ in range(6000): time.sleep(0.01)"


@pytest.fixture
def runtimes(platform: StandingPlatform) -> Iterator[list[PythonRuntime]]:
    """More than one process serves them, where there are free ones."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(PythonRuntime(address=platform.address, token=platform.token))
            for _ in range(3)
        ]


@pytest.fixture
def one_cell(platform: StandingPlatform) -> Iterator[None]:
    """A tenant that may run one cell at a time."""
    platform.command("tenant", "limit", "default", "cells", "1")
    yield
    platform.command("tenant", "limit", "default", "cells", "none")


@pytest.mark.slow
def test_processes_count_cells_together(one_cell: None, runtimes: list[PythonRuntime]) -> None:
    """One cell runs, wherever; a second one is refused in each of the other runtimes, and runs when it has ended."""
    first, *others = runtimes
    for each in runtimes:
        assert each.execute("1").success
    begun = threading.Event()
    running = threading.Thread(
        target=first.execute, args=(LONG,), kwargs={"on_output": lambda *_: begun.set()}
    )
    running.start()
    assert begun.wait(PATIENCE)
    for other in others:
        with pytest.raises(QuotaExceededError, match="1 of 1 are taken"):
            other.execute("1")
    first.interrupt()
    running.join()
    assert all(each.execute("1").success for each in runtimes)


@pytest.mark.slow
def test_each_cell_is_on_record_once(platform: StandingPlatform, runtimes: list[PythonRuntime]) -> None:
    """Also when the gateway is killed; when a runtime process is killed, the log says what it may lack."""
    before, after = ([f"'{when} {number}'" for number in range(3)] for when in ("before", "after"))

    def marked() -> list[object]:
        lines = (event.facts["first_line"] for event in platform.on_record("cell"))
        return [line for line in lines if line in before + after]

    for marks in (before, after):
        for runtime, mark in zip(runtimes, marks, strict=True):
            assert runtime.execute(mark).success
        if marks is before:
            until(lambda: bool(marked()))
            kill(platform.gateway)
    until(lambda: sorted(map(str, marked())) == sorted(before + after))
    gaps = len(platform.on_record("gap"))
    kill(*platform.processes("ray::RuntimeActor"))
    until(lambda: len(platform.on_record("gap")) > gaps)
    assert len(before + after) == len(marked())
    assert "the record is as it was written" in platform.command("audit", "verify").stdout
