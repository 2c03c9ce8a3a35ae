"""The output of a running cell, for those who look on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.waiting import PATIENCE, until

from cenote import Function, PythonRuntime, SandboxPolicy
from cenote.runtime import LiveOutput
from cenote_worker.supervisor.running_request import LIVE

BARE = SandboxPolicy(preload=())


@pytest.fixture
def going() -> threading.Event:
    """Set when the cell may go on."""
    return threading.Event()


@pytest.fixture
def runtime(going: threading.Event) -> Iterator[PythonRuntime]:
    def wait() -> None:
        assert going.wait(PATIENCE)

    with PythonRuntime(functions=[Function(wait, host=True)], sandbox=BARE) as made:
        yield made
        going.set()


@contextmanager
def running(runtime: PythonRuntime, going: threading.Event, code: str) -> Iterator[None]:
    """The cell runs until the block has ended."""
    thread = threading.Thread(target=runtime.execute, args=(code,))
    thread.start()
    try:
        yield
    finally:
        going.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def printed(runtime: PythonRuntime, end: int) -> LiveOutput:
    """All that is stored, once so many characters were printed."""
    return until(lambda: found if (found := runtime.live_output()).end >= end else None)


def test_another_author_sees_it_as_it_comes(runtime: PythonRuntime, going: threading.Event) -> None:
    """In order, from the last look on; nothing when the cell has ended."""
    assert LiveOutput() == runtime.live_output()
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    code = "import sys\nprint('one')\nprint('two', file=sys.stderr)\nwait()"
    with running(ana, going, code):
        seen = printed(ben, 8)
        assert (
            LiveOutput(step=1, author="ana", pieces=(("stdout", "one\n"), ("stderr", "two\n")), end=8) == seen
        )
        assert (("stderr", "o\n"),) == ben.live_output(LiveOutput(step=1, end=6)).pieces
        assert LiveOutput(step=1, author="ana", end=8) == ben.live_output(seen)
        assert seen == ben.live_output(LiveOutput(step=7, end=8))
    assert LiveOutput() == ben.live_output(seen)


def test_who_looks_on_too_seldom_is_told_what_is_missing(
    runtime: PythonRuntime, going: threading.Event
) -> None:
    """The cell does not wait for a look; what is stored for it has a bound."""
    printing = 20 * LIVE
    with running(runtime, going, f"for _ in range({printing // 64}): print('x' * 63)\nwait()"):
        found = printed(runtime, printing)
        stored = sum(len(text) for _, text in found.pieces)
        assert printing == found.end == found.missed + stored
        assert LIVE <= stored < 3 * LIVE
