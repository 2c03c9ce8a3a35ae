"""Two jails of one runtime: what ends with one of them, and what its owner is informed of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.adoption.supervising import offer, replaced
from tests.support.hosted.listening import Heard, NoHosts
from tests.waiting import until

from cenote.runtime.replay.patcher import apply_patch
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import JailLostError, RuntimeClosedError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import Patched
from cenote_worker.runtime.patch_jobs import PatchWatch
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.supervisor import Supervisor


class Ends(NoHosts):
    """Counts how often everything that jails were given is released."""

    count = 0

    def ended(self) -> None:
        self.count += 1


@pytest.fixture
def hosts() -> Ends:
    return Ends()


@pytest.fixture
def runtime(hosts: Ends) -> Iterator[HostedRuntime]:
    """Stores no states, and has a host function."""
    runtime = HostedRuntime(SandboxPolicy(preload=(), snapshots="none"), hosts)
    heard = Heard()
    runtime.inject(offer("send"), heard, replace=True)
    heard.outcome()
    for code in ("a = 1", "b = a"):
        heard = Heard()
        runtime.execute(code, None, heard)
        assert heard.result().success
    yield runtime
    runtime.close()


def patched(
    runtime: HostedRuntime, code: str, *, killed: Supervisor | None = None
) -> tuple[Patched, Supervisor]:
    """A patch of the first step, and the jail in which it ran. killed: ends while it runs."""
    seen: list[Supervisor | None] = []

    def progress(_progress: runtime_pb2.ApplyProgress) -> None:
        seen.append(runtime.supervisor)
        if killed is not None:
            killed.end(JailExit(reason="killed"))
            until(lambda: killed.death is not None)

    first = runtime.history.tree.line(runtime.history.tree.head)[0].number
    watch = PatchWatch(progress=progress, cancelled=lambda: False)
    result, second = apply_patch(runtime, replaced(runtime, first, code), watch), seen[-1]
    assert second is not None
    return result, second


def test_what_the_client_has_given_is_let_go_with_the_last_jail(runtime: HostedRuntime, hosts: Ends) -> None:
    """Whichever of the two stays continues to use it."""
    first = runtime.supervisor
    assert first is not None
    result, second = patched(runtime, "a = None + 1")
    until(lambda: second.death is not None)
    assert ("failed", first, 0) == (result.status, runtime.supervisor, hosts.count)
    result, second = patched(runtime, "a = 2")
    until(lambda: first.death is not None)
    assert ("applied", second, 0) == (result.status, runtime.supervisor, hosts.count)
    runtime.close()
    until(lambda: hosts.count == 1)


def test_both_end_with_their_runtime(runtime: HostedRuntime) -> None:
    """The runtime is closed in the middle of a patch."""
    jails = [runtime.supervisor]

    def closing(_progress: runtime_pb2.ApplyProgress) -> None:
        jails.append(runtime.supervisor)
        runtime.close()

    watch = PatchWatch(progress=closing, cancelled=lambda: False)
    with pytest.raises(RuntimeClosedError):
        apply_patch(runtime, replaced(runtime, runtime.history.tree.head, "b = 2"), watch)
    assert 2 == len(set(jails))
    until(lambda: all(jail is not None and jail.death is not None for jail in jails))


def test_the_end_of_a_jail_that_waits_is_told(runtime: HostedRuntime) -> None:
    """Once, by the next call: a failed patch cannot restore a jail that has ended."""
    assert "failed" == patched(runtime, "a = None + 1", killed=runtime.supervisor)[0].status
    with pytest.raises(JailLostError):
        runtime.start()
    heard = Heard()
    runtime.execute("'a' in globals()", None, heard)
    assert "False" == heard.result().value


def test_the_end_of_a_jail_that_waits_is_no_loss_where_the_other_stays(runtime: HostedRuntime) -> None:
    assert "applied" == patched(runtime, "a = 2", killed=runtime.supervisor)[0].status
    heard = Heard()
    runtime.execute("a, b", None, heard)
    assert "(2, 2)" == heard.result().value
