"""Tests of `cenote_worker.runtime.jails`: which authors learn that a jail has ended, and which do not."""

from __future__ import annotations

from typing import cast

import pytest

from cenote_worker.runtime.jails import RESET, CurrentJail
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.requests import OWNER, AuthorSession
from cenote_worker.supervisor.supervisor import Supervisor

KILLED = JailExit(reason="killed")


class Ended:
    """The part of a supervisor that reports its end."""

    def __init__(self) -> None:
        self.death: JailExit | None = None
        self.mournings = 0

    def mourned(self) -> None:
        self.mournings += 1


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def guest() -> AuthorSession:
    return AuthorSession(author="guest")


@pytest.fixture
def jail(ended: Ended, guest: AuthorSession) -> CurrentJail:
    """A jail that its owner and a guest have used."""
    jail = CurrentJail(lambda: False)
    jail.supervisor = cast("Supervisor", ended)
    for seat in (OWNER, guest):
        jail.used(seat, cast("Supervisor", ended))
    return jail


def test_each_seat_that_has_used_a_jail_hears_once_of_its_end(
    jail: CurrentJail, ended: Ended, guest: AuthorSession
) -> None:
    assert (None, None) == (jail.unheard(OWNER), jail.unheard(guest))
    ended.death = KILLED
    for seat, heard in ((guest, KILLED), (AuthorSession(author="late"), None), (OWNER, KILLED)):
        assert [heard, None] == [jail.unheard(seat), jail.unheard(seat)]


def test_a_successor_is_told_what_the_owner_has_heard(
    jail: CurrentJail, ended: Ended, guest: AuthorSession
) -> None:
    """A notice to another author does not inform the owner."""
    ended.death = KILLED
    assert (KILLED, 0) == (jail.unheard(guest), ended.mournings)
    assert (KILLED, 1) == (jail.unheard(OWNER), ended.mournings)


def test_others_hear_of_a_jail_that_its_owner_has_given_up(
    jail: CurrentJail, ended: Ended, guest: AuthorSession
) -> None:
    """Whether or not it has ended by then."""
    assert ended is jail.dismiss()
    assert (None, None, RESET) == (jail.running, jail.unheard(OWNER), jail.unheard(guest))


def test_nobody_hears_of_a_jail_that_was_exchanged(
    jail: CurrentJail, ended: Ended, guest: AuthorSession
) -> None:
    assert ended is jail.exchange(None)
    ended.death = KILLED
    assert (None, None) == (jail.unheard(OWNER), jail.unheard(guest))


def test_the_end_of_a_jail_that_another_process_left_is_the_owner_s_news(guest: AuthorSession) -> None:
    jail = CurrentJail(lambda: False)
    jail.bereave(KILLED)
    assert [None, KILLED, None] == [jail.unheard(guest), jail.unheard(OWNER), jail.unheard(OWNER)]


def test_what_was_heard_while_a_jail_was_taken_over_is_not_told_again(ended: Ended) -> None:
    """The current request can end before the take-over does."""
    jail = CurrentJail(lambda: False)

    def supervise() -> Supervisor:
        ended.death = KILLED
        jail.lost()
        return cast("Supervisor", ended)

    assert ended is jail.take_over(supervise)
    assert (ended, None, None) == (jail.supervisor, jail.running, jail.unheard(OWNER))
