"""When an actor counts as hanging: not while it starts, and not after a pause of the whole machine."""

from __future__ import annotations

from cenote_worker.node.ray.actor_calls import LOOK_PATIENCE
from cenote_worker.node.ray.actor_watch import COMING_PATIENCE, ActorHeartbeat


def test_one_that_answered_before_is_asked_twice() -> None:
    """At the limit the caller still waits, and past it it asks once more."""
    pulse = ActorHeartbeat(0.0)
    pulse.answered(5.0)
    assert "waits" == pulse.look(5.0 + LOOK_PATIENCE)
    later = 6.0 + LOOK_PATIENCE
    assert "ask" == pulse.look(later)
    assert "waits" == pulse.look(later + LOOK_PATIENCE)
    assert "hangs" == pulse.look(later + LOOK_PATIENCE + 1.0)


def test_a_late_answer_is_an_answer() -> None:
    """The next call gets the full timeout again."""
    pulse = ActorHeartbeat(0.0)
    pulse.answered(0.0)
    now = LOOK_PATIENCE + 1.0
    assert "ask" == pulse.look(now)
    pulse.answered(now)
    assert "waits" == pulse.look(now + LOOK_PATIENCE)
    assert "ask" == pulse.look(now + LOOK_PATIENCE + 1.0)


def test_one_that_comes_up_has_longer() -> None:
    """At first, and after each of its restarts."""
    pulse = ActorHeartbeat(0.0)
    assert "waits" == pulse.look(COMING_PATIENCE)
    pulse.answered(COMING_PATIENCE)
    pulse.ended(200.0)
    assert "waits" == pulse.look(200.0 + COMING_PATIENCE)
    later = 201.0 + COMING_PATIENCE
    assert "ask" == pulse.look(later)
    assert "hangs" == pulse.look(later + COMING_PATIENCE + 1.0)
