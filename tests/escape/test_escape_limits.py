"""Resources of others are safe: bombs meet a limit, hangs end, and processes of a jail end with it."""

from __future__ import annotations

import errno
import threading
from contextlib import suppress

import pytest
from tests.support.escape.arena import Arena, outcome, stop_for_good, warden_of
from tests.support.escape.attempts_bombs import BOMBS, HANGS
from tests.support.processes import runs, status_of, tree_of
from tests.waiting import PATIENCE, until

from cenote.runtime import ExecutionResult, PythonRuntime
from cenote_security.attacks.escape_attempt import EscapeAttempt
from cenote_security.errors import JailError
from cenote_worker.runtime import runtime as hosted
from cenote_worker.supervisor.start import JailStarter


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", BOMBS.attempts, ids=lambda attempt: attempt.name)
def test_bombs_meet_a_limit(arena: Arena, attempt: EscapeAttempt) -> None:
    """The limit is the jail's own: the neighbour continues, and so does a fresh jail of the same runtime."""
    with PythonRuntime(sandbox=arena.small_policy()) as runtime:
        result = runtime.execute(attempt.cell(arena.facts()), timeout=60)
        assert outcome(result) in attempt.outcomes, (attempt.reference, result.stdout[-300:], result.error)
        assert len(result.stdout) + len(result.stderr) < 4 << 20
        assert [] == arena.breaches(result), attempt.reference
        runtime.reset()
        assert "42" == runtime.execute("6 * 7").value


@pytest.mark.slow
def test_hangs_end(hasty: None, arena: Arena) -> None:
    """Each is killed when its time is up; all of them at once delay no other jail."""
    results: dict[str, ExecutionResult] = {}

    def hang(attempt: EscapeAttempt, runtime: PythonRuntime) -> None:
        for seconds in (1, 20):  # on a busy machine it may end before it hangs
            result = results[attempt.name] = runtime.execute(attempt.cell(arena.facts()), timeout=seconds)
            if outcome(result) in attempt.outcomes:
                return

    runtimes = [PythonRuntime(sandbox=arena.policy) for _ in HANGS.attempts]
    threads = [
        threading.Thread(target=hang, args=pair) for pair in zip(HANGS.attempts, runtimes, strict=True)
    ]
    for thread in threads:
        thread.start()
    assert "42" == arena.neighbour.execute("6 * 7", timeout=PATIENCE).value
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    for attempt in HANGS.attempts:
        assert outcome(results[attempt.name]) in attempt.outcomes, (attempt.name, results[attempt.name])
        assert [] == arena.breaches(results[attempt.name])
    for runtime in runtimes:
        runtime.close()


LEFT_BEHIND = """
import os, signal, time
for ignored in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(ignored, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(100)
        os._exit(0)
    os.wait()
"""
"""Each orphan is a child of the jail by the end of the cell."""


def test_nothing_survives_its_jail(arena: Arena) -> None:
    """Daemons in their own sessions, orphaned twice, end with their jail."""
    with PythonRuntime(sandbox=arena.policy) as runtime:
        runtime.execute(LEFT_BEHIND)
        left = tree_of(warden_of(runtime))
        assert len(left) >= 5
    until(lambda: not any(map(runs, left)))


@pytest.mark.slow
def test_nothing_survives_its_jail_when_the_zygote_is_gone_too(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no process is left that adopts orphans and would end them: the warden must have done it before."""
    monkeypatch.setattr(hosted, "start_jail", JailStarter().start)
    with PythonRuntime(sandbox=arena.policy) as runtime:
        runtime.execute(LEFT_BEHIND)
        warden = warden_of(runtime)
        left = tree_of(warden)
        assert len(left) >= 5
        stop_for_good(int(status_of(warden)["PPid"]))
    until(lambda: not any(map(runs, left)))


CROWD = """
import array, socket
pairs, rights = [], array.array("i", [0] * 200)
try:
    while len(pairs) < 400:
        pairs.append(socket.socketpair())
        for _ in range(10):
            pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_DONTWAIT)
except OSError as error:
    print(error.errno)
"""


def test_descriptors_under_way_cost_a_neighbour_nothing_for_good(arena: Arena) -> None:
    """The kernel counts them per user (CVE-2013-4312's limit): a jail that uses the count up may delay another's
    large values; it does not end that jail, and the client can still start new ones.
    """
    with PythonRuntime(sandbox=arena.policy) as crowd, PythonRuntime(sandbox=arena.policy) as victim:
        victim.execute("kept = bytes(1 << 20)")
        assert str(errno.ETOOMANYREFS) in crowd.execute(CROWD, timeout=PATIENCE).stdout
        with suppress(JailError):
            victim.share("kept")
        assert "1048576" == victim.execute("len(kept)").value
        with PythonRuntime(sandbox=arena.policy) as fresh:
            assert "42" == fresh.execute("6 * 7").value
        crowd.close()
        assert 1 << 20 == len(until(lambda: _retrieved(victim)))


def _retrieved(victim: PythonRuntime) -> bytes:
    """Empty at first: the kernel frees a dead process's resources with a delay."""
    with suppress(JailError):
        return bytes(victim.retrieve("kept"))
    return b""
