"""How often a platform's process is restarted."""

from __future__ import annotations

import pytest

from cenote.gateway.process.restart_policy import FIRST_PAUSE, MAX_RESTARTS, RESTART_WINDOW, Restarts


def test_each_restart_waits_longer_than_the_one_before() -> None:
    """After several restarts it is not restarted again."""
    restarts = Restarts()
    pauses = [restarts.pause(float(now)) for now in range(MAX_RESTARTS)]
    assert [FIRST_PAUSE * 4**number for number in range(MAX_RESTARTS)] == pytest.approx(pauses)
    assert restarts.pause(float(MAX_RESTARTS)) is None


def test_restarts_of_long_ago_do_not_count() -> None:
    """A platform that is killed now and then is restarted each time, and at once."""
    restarts = Restarts()
    for number in range(3 * MAX_RESTARTS):
        assert FIRST_PAUSE == restarts.pause(number * RESTART_WINDOW)


def test_the_window_is_as_long_as_it_says() -> None:
    """A restart counts until then and no longer."""
    restarts = Restarts()
    for _ in range(MAX_RESTARTS):
        restarts.pause(0.0)
    assert restarts.pause(RESTART_WINDOW - 1) is None
    assert FIRST_PAUSE == restarts.pause(RESTART_WINDOW)
