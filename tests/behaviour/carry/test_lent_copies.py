"""Forks of kept copies, lent to the worker for one question."""

from __future__ import annotations

import socket

from tests.support.carry.moves import carry, ran

from cenote import Function, SandboxPolicy
from cenote.runtime import PythonRuntime
from cenote_worker.execution.trace import ANYTHING, name
from cenote_worker.zygote.warden.snapshot_store import SnapshotStore


def test_whoever_asks_for_a_copy_that_is_not_there_hears_the_end_at_once() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here:
        SnapshotStore().lend(1, there)
        assert b"" == here.recv(1)


def test_a_copy_that_is_lent_stays_what_it_was(runtime: PythonRuntime) -> None:
    """Code that a class runs while it is pickled runs in a fork of the copy."""
    code = "seen = []\nclass C:\n    def __reduce__(self):\n        seen.append(1)\n"
    code += "        return make, (list(seen),)\n"
    ran(runtime, f"{code}def make(state):\n    c = C()\n    c.state = state\n    return c\nx = C()")
    ran(runtime, "x = None")
    for _ in range(2):
        assert "" == carry(runtime, 1, name("x"), name("C"), name("seen"), name("make"))
        assert "[1]" == runtime.execute("x.state").value
    runtime.rollback(1)
    assert "[]" == runtime.execute("seen").value


def test_nothing_is_carried_where_no_states_are_kept() -> None:
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), snapshots="none")) as runtime:
        ran(runtime, "x = 1")
        assert "this runtime keeps no former states" == carry(runtime, 1, name("x"))


def test_a_host_call_makes_no_later_step_see_everything(runtime: PythonRuntime) -> None:
    """The thread that waits for answers cannot change variables."""

    def double(n: int) -> int:
        return 2 * n

    runtime.inject(Function(double, host=True))
    for _ in range(2):
        assert ANYTHING not in ran(runtime, "n = double(2)").writes
    assert ANYTHING not in ran(runtime, "calm = 1").writes


def test_a_function_that_the_client_has_sent_is_the_live_one_or_none(runtime: PythonRuntime) -> None:
    """Its module is not in the jail: a list that holds it would come with a different function."""
    runtime.inject(Function(lambda n: n + 1, name="more"))
    ran(runtime, "tools = [more]")
    runtime.snapshot()  # otherwise no copy of that state exists, if the next request is quick
    assert "it holds `more`, which does not come along" == carry(runtime, 1, name("tools"))
    assert "" == carry(runtime, 1, name("tools"), name("more"))


def test_stubs_of_host_functions_come_along(runtime: PythonRuntime) -> None:
    runtime.inject(Function(lambda n: n + 1, name="more", host=True))
    ran(runtime, "tools = [more]")
    ran(runtime, "tools = None")
    assert "" == carry(runtime, 1, name("tools"))
    assert "(2, True)" == runtime.execute("tools[0](1), tools[0] is more").value
