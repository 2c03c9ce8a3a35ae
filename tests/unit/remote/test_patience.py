"""How long a session goes on trying, in seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cenote.runtime.remote.reconnection import (
    AT_FIRST,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PATIENCE,
    STEADY,
    RetrySchedule,
)


def test_a_first_line_is_given_up_soon() -> None:
    """The caller waits for it."""
    patience = RetrySchedule()
    assert FIRST_PAUSE == patience.broke(100)
    assert patience.broke(100 + AT_FIRST - 0.01) is not None
    assert patience.broke(100 + AT_FIRST) is None


def test_a_broken_line_is_given_up_later() -> None:
    """Counted from the break, with pauses that grow to a limit."""
    patience = RetrySchedule()
    patience.stands(0)
    pauses = [patience.broke(7) for _ in range(10)]
    assert [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] == pauses[:3]
    assert LONGEST_PAUSE == pauses[-1]
    assert patience.broke(7 + PATIENCE - 0.01) is not None
    assert patience.broke(7 + PATIENCE) is None


def test_a_line_that_stood_for_a_while_renews_it() -> None:
    """One that breaks at once each time does not, and the session is given up."""
    patience = RetrySchedule()
    patience.stands(0)
    patience.broke(1)
    patience.stands(2)
    assert FIRST_PAUSE == patience.broke(2 + STEADY)
    patience.stands(8)
    assert patience.broke(2 + STEADY + PATIENCE) is not None, "it stood from 8 on"
    flickering = RetrySchedule()
    now = 0.0
    while now < PATIENCE + STEADY:
        flickering.stands(now)
        now += STEADY - 1
        given_up = flickering.broke(now) is None
    assert given_up


@given(st.lists(st.floats(min_value=0, max_value=STEADY - 0.1), min_size=1))
def test_it_ends(standing: list[float]) -> None:
    """However often a connection comes back for less than a moment, trying ends after a bounded time."""
    patience, now = RetrySchedule(), 0.0
    for seconds in standing * 100:
        patience.stands(now)
        now += seconds
        pause = patience.broke(now)
        if pause is None:
            break
        now += pause
    assert now <= STEADY + PATIENCE + STEADY + LONGEST_PAUSE
