"""Full runs of a history for remote clients: one client at a time, and no run is left over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest
from tests.support.hosted.listening import Heard, NoHosts
from tests.waiting import PATIENCE

from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import RanInFull
from cenote_worker.runtime.recorder import admit_all
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.scratch_runtime import FullRun, FullRuns, FullRunWatch


class Work:
    """A RunInFull without steps and jails. It ends when the test says so."""

    def __init__(self) -> None:
        self.runtime = HostedRuntime(SandboxPolicy(), NoHosts())
        self.go, self.closed = Event(), Event()

    @contextmanager
    def __call__(self, watch: FullRunWatch) -> Iterator[FullRun]:
        watch.begun(self.runtime)
        try:
            assert self.go.wait(PATIENCE)
            if watch.cancelled():
                raise UnavailableError("nobody waits")
            yield FullRun(runtime=self.runtime, steps=(1, 2))
        finally:
            self.closed.set()


@pytest.fixture
def runs() -> Iterator[FullRuns]:
    runs = FullRuns()
    yield runs
    runs.end()


def begun(runs: FullRuns, number: int = 1, client: str = "one", *, ran: bool = True) -> Work:
    work, heard = Work(), Heard()
    runs.begin(work, number, client, f"{client} {number}", heard, admit_all)
    if ran:
        work.go.set()
        assert RanInFull(steps=(1, 2)) == heard.outcome()
    return work


def test_its_client_looks_at_it_until_it_says_so(runs: FullRuns) -> None:
    """Each has a number; the number of a finished run leads to no other state."""
    first, second = begun(runs, 1), begun(runs, 2)
    assert [first.runtime, second.runtime] == [runs.of("one", number) for number in (1, 2)]
    runs.end("one", 1)
    assert first.closed.wait(PATIENCE)
    with pytest.raises(UnavailableError, match="no full run"):
        runs.of("one", 1)
    assert second.runtime is runs.of("one", 2)
    runs.end("one")
    assert second.closed.wait(PATIENCE)


def test_one_client_at_a_time(runs: FullRuns) -> None:
    """Other clients see none of its values, and do not take the machine's memory as well."""
    work = begun(runs)
    with pytest.raises(UnavailableError, match="another client"):
        begun(runs, client="two")
    with pytest.raises(UnavailableError, match="no full run"):
        runs.of("two", 1)
    runs.end("two")
    assert work.runtime is runs.of("one", 1)
    runs.end("one")
    begun(runs, client="two")


def test_one_that_is_cancelled_is_told_so(runs: FullRuns) -> None:
    """By its key, while it runs; and it has no state to look at before it has run."""
    work, heard = Work(), Heard()
    runs.begin(work, 1, "one", "k", heard, admit_all)
    with pytest.raises(UnavailableError, match="no full run"):
        runs.of("one", 1)
    runs.cancel("another")
    runs.cancel("k")
    work.go.set()
    assert isinstance(heard.outcome(), UnavailableError)
    assert work.closed.wait(PATIENCE)


def test_a_client_that_comes_back_begins_anew(runs: FullRuns) -> None:
    """Its answer was lost with its connection."""
    former = begun(runs)
    later = begun(runs)
    assert former.closed.wait(PATIENCE)
    assert later.runtime is runs.of("one", 1)
