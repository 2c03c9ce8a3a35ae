"""How long a runtime may live, and how many at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.support.limits.fixtures import StartRuntime
from tests.waiting import until

from cenote_security.errors import CenoteError, RuntimeExpiredError, UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime import runtime as hosted
from cenote_worker.supervisor.jail_count_limit import SETTING, JailCountLimit
from cenote_worker.supervisor.start import JailStarter


@pytest.mark.slow
def test_a_runtime_s_time(start_runtime: StartRuntime) -> None:
    """The cell that is running then is ended; afterwards the runtime starts nothing."""
    for limit in (1.5, 15.0, 45.0):  # with more time if the cell has not begun by then
        runtime = start_runtime(runtime_timeout=limit)
        with suppress(CenoteError):
            result = runtime.execute("print('begun')\nimport time\ntime.sleep(200)")
            if result.stdout:
                break
    assert result.error is not None
    assert ("time", "lost") == (result.error.reason, result.state)
    assert f"the runtime's time of {limit:g} s was over" in result.error.message
    with pytest.raises(RuntimeExpiredError, match=f"{limit:g} s"):
        runtime.execute("1")


def test_no_time_at_all() -> None:
    """An invalid limit is refused at once."""
    with pytest.raises(UsageError, match="runtime_timeout"):
        SandboxPolicy(runtime_timeout=0)


def test_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit a place is refused, with the setting's name; a returned one can be taken again."""
    monkeypatch.setenv(SETTING, "2")
    ceiling = JailCountLimit()
    ceiling.take()
    ceiling.take()
    with pytest.raises(UnavailableError, match="CENOTE_MAX_RUNTIMES=2"):
        ceiling.take()
    ceiling.give()
    ceiling.take()


def test_a_ceiling_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "many")
    with pytest.raises(UsageError, match="many"):
        JailCountLimit()


@pytest.mark.slow
def test_a_closed_runtime_gives_its_place_back(
    start_runtime: StartRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the end of its jail was."""
    nursery = JailStarter()  # other jails may belong to earlier tests: those may still be ending
    monkeypatch.setattr(hosted, "start_jail", nursery.start)
    runtime = start_runtime(snapshots="none")
    runtime.core.start()
    ceiling = nursery._own_ceiling()
    assert 1 == ceiling._taken
    runtime.execute("import os; os._exit(0)")
    until(lambda: 0 == ceiling._taken)
