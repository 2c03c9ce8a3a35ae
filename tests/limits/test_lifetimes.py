"""How long a runtime may live, and how many at once."""

from __future__ import annotations

import pytest
from tests.limits.conftest import StartRuntime

from cenote_security.errors import RuntimeExpiredError, UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.supervisor.ceiling import SETTING, Ceiling


def test_a_runtime_s_time(start_runtime: StartRuntime) -> None:
    """The cell that runs when it is over is ended with it; then the runtime starts nothing any more."""
    runtime = start_runtime(runtime_timeout=1.5)
    result = runtime.execute("import time\ntime.sleep(20)")
    assert result.error is not None
    assert ("time", "lost") == (result.error.reason, result.state)
    assert "the runtime's time of 1.5 s was over" in result.error.message
    with pytest.raises(RuntimeExpiredError, match=r"1\.5 s"):
        runtime.execute("1")


def test_no_time_at_all() -> None:
    """A limit that makes no sense is refused at once."""
    with pytest.raises(UsageError, match="runtime_timeout"):
        SandboxPolicy(runtime_timeout=0)


def test_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """At it a place is refused, with the setting's name; one given back can be taken again."""
    monkeypatch.setenv(SETTING, "2")
    ceiling = Ceiling()
    ceiling.take()
    ceiling.take()
    with pytest.raises(UnavailableError, match="CENOTE_MAX_RUNTIMES=2"):
        ceiling.take()
    ceiling.give()
    ceiling.take()


def test_a_ceiling_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "many")
    with pytest.raises(UsageError, match="many"):
        Ceiling()


def test_a_closed_runtime_gives_its_place_back(start_runtime: StartRuntime) -> None:
    """However its jail ended."""
    from cenote_worker.supervisor.start import _nursery

    runtime = start_runtime(snapshots="none")
    runtime.core.start()
    ceiling = _nursery._own_ceiling()
    taken = ceiling._taken
    runtime.execute("import os; os._exit(0)")
    assert taken - 1 == ceiling._taken
