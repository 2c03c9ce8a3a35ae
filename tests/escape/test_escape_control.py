"""The witnesses work: without walls the same attempts are seen to get through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_files import FILES
from tests.support.escape.attempts_network import NETWORK
from tests.support.escape.attempts_processes import SIGNALS

from cenote_security.attacks.escape_attempt import EscapeAttempt, outcome_of
from cenote_security.attacks.short_set_unsafe import SHORT

HARMLESS = {
    "read_a_secret", "climb_with_dots", "read_through_a_symbolic_link", "race_with_symbolic_links", "send_the_secret",
    "make_entries_outside", "change_mode_or_owner", "write_extended_attributes",
    "cut_what_is_shown", "let_a_child_read", "connect_to_a_local_service", "send_a_datagram",
    "connect_to_an_abstract_socket", "connect_to_a_socket_file", "queue_a_signal", "signal_by_pidfd",
    "attach_a_tracer",
}  # fmt: skip
ATTEMPTS = [
    one for family in (SHORT, FILES, NETWORK, SIGNALS) for one in family.attempts if one.name in HARMLESS
]


@pytest.fixture
def open_arena() -> Iterator[Arena]:
    arena = Arena("none")
    yield arena
    arena.close()


@pytest.mark.slow
def test_without_walls_attempts_get_through(open_arena: Arena) -> None:
    """Each is noticed from outside. An attempt that would hit the client hits the bystander instead."""
    assert len(HARMLESS) == len(ATTEMPTS)
    assert [] == [attempt.name for attempt in ATTEMPTS if not _is_noticed(open_arena, attempt)]


def _is_noticed(arena: Arena, attempt: EscapeAttempt) -> bool:
    facts = arena.facts() | {"client": arena.witnesses.bystander, "neighbour": arena.witnesses.bystander}
    result = arena.runtime.execute(attempt.cell(facts))
    noticed = arena.witnesses.breaches(result.stdout)
    assert outcome_of(result.stdout), result
    return noticed != []


@pytest.mark.slow
def test_missing_walls_are_noticed(open_arena: Arena) -> None:
    """A jail's processes without filter, dropped capabilities and no_new_privs do not count as confined."""
    result = open_arena.runtime.execute("1")
    assert any("NoNewPrivs" in breach for breach in open_arena.breaches(result))
