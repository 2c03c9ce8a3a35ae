"""What is recorded of a worker's death until a client is informed."""

from __future__ import annotations

from cenote_worker.supervisor.exit_reason import MOST_DEATHS, JailExit, WorkerRecovery

CRASH = JailExit(reason="signal 11")


def test_nothing_is_missing_when_the_copy_is_of_now() -> None:
    """The worker was idle, and its last state had been copied."""
    recovery = WorkerRecovery(head=4)
    assert not recovery.revive(CRASH, 4)
    assert () == recovery.news()


def test_the_next_cell_is_told_of_an_end_that_cost_nothing() -> None:
    """The news reaches a cell that runs: only threads, connections and processes are missing."""
    recovery = WorkerRecovery(head=4)
    recovery.revive(CRASH, 4)
    recovery.pass_over()
    assert None is recovery.told()
    (line,) = recovery.news()
    assert "before this cell" in line
    assert () == recovery.news()


def test_an_older_copy_is_news() -> None:
    """A client has to be informed, once."""
    recovery = WorkerRecovery(head=4)
    assert recovery.revive(CRASH, 2)
    (line,) = recovery.news()
    assert "after step 2" in line
    assert (2, ()) == (recovery.head, recovery.news())


def test_a_change_behind_the_last_cell_is_missing_too() -> None:
    """An injection has no step of its own."""
    recovery = WorkerRecovery(head=4, touched=True)
    assert recovery.revive(CRASH, 4)


def test_two_deaths_are_one_setback() -> None:
    """The setback goes from the worker's position to that of the last copy."""
    recovery = WorkerRecovery(head=4)
    recovery.revive(CRASH, 3)
    recovery.revive(CRASH, 2)
    setback = recovery.told()
    assert setback is not None
    assert (4, 2) == (setback.before, setback.step)


def test_the_sentence_is_the_reason() -> None:
    """The process that killed the worker knows the reason better than its warden."""
    recovery = WorkerRecovery()
    recovery.strike(JailExit(reason="time"))
    recovery.revive(CRASH, 0)
    setback = recovery.told()
    assert setback is not None
    assert "time" == setback.death.reason


def test_one_strike_for_each_request() -> None:
    """If killing the worker had no effect, the jail must end; if something ran since, killing it may help again."""
    recovery = WorkerRecovery()
    recovery.strike(CRASH)
    assert not recovery.may_strike()
    recovery.begin()
    assert recovery.may_strike()


def test_a_request_that_nobody_survives() -> None:
    """Each successor in turn dies: the copy is dropped, and the next worker starts from the beginning."""
    recovery = WorkerRecovery()
    for _ in range(MOST_DEATHS):
        recovery.revive(CRASH, 0)
    assert not recovery.is_hopeless
    recovery.revive(CRASH, 0)
    assert recovery.is_hopeless
    recovery.begin()
    assert not recovery.is_hopeless


def test_snapshots_are_given_up_before_a_cell_is_killed() -> None:
    """Once for each request."""
    recovery = WorkerRecovery()
    assert (True, False) == (recovery.may_relieve(), recovery.may_relieve())
    recovery.begin()
    assert recovery.may_relieve()
