"""Which share of a process's descriptors its connections may use."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from cenote_worker.supervisor.jail_count_limit import room_for_connections


@pytest.fixture
def few() -> Iterator[None]:
    """A soft limit as shells set it; the former one is restored."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few")
def test_connections_leave_half_of_the_descriptors() -> None:
    """However many connections are wanted; the soft limit is raised first where it is too low."""
    room = room_for_connections(10**6)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft // 2 == room
    assert min(4 * 1024, hard) <= soft


@pytest.mark.usefixtures("few")
def test_there_are_no_more_than_were_asked_for() -> None:
    assert 10 == room_for_connections(10)
