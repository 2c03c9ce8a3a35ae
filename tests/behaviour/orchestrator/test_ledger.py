"""What an orchestrator reads and writes, without a platform: runs, notes, events, and concurrent writers."""

from __future__ import annotations

import pytest

from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenants
from cenote.gateway.teams import tables as news_module
from cenote.gateway.teams import tables as runs_module
from cenote.gateway.teams.ledger import Note, TeamLedger
from cenote.gateway.teams.tables import (
    MAX_EVENT_CONTENT,
    StoredTeamEvent,
    TeamEventTable,
    TeamRow,
    TeamRunTable,
    TeamTable,
)
from cenote.gateway.work.workload import SupersededError
from cenote_security.errors import EntryExistsError, UnknownEntryError


def news(kind: str, agent: str = "a", place: str = "p", content: str = "") -> StoredTeamEvent:
    return StoredTeamEvent(number=0, at=1.0, run=1, agent=agent, place=place, kind=kind, content=content)


def test_a_team_is_its_tenants(database: Database, team: TeamRow) -> None:
    """By name and by id; another tenant may use the name, and finds nothing of this team."""
    them = Tenants(database).create("them").id
    teams = TeamTable(database)
    assert team == teams.find(team.tenant, "team") == teams.find(team.tenant, team.id)
    for text in ("team", team.id):
        with pytest.raises(UnknownEntryError):
            teams.find(them, text)
    with pytest.raises(EntryExistsError):
        teams.add(team.tenant, "team", b"")
    assert team.id != teams.add(them, "team", b"").id


def test_runs_come_in_order_and_once_per_key(database: Database, team: TeamRow) -> None:
    """A repeated request returns the run of the first one."""
    runs = TeamRunTable(database)
    numbers = [runs.add(team.id, b"work", key).number for key in ("a", "b", "a", "", "")]
    assert [1, 2, 1, 3, 4] == numbers
    assert [1, 2, 3, 4] == [run.number for run in runs.open(team.id)]
    assert [team.id] == runs.teams_at_work()
    assert 4 == runs.get(team.id, 0).number
    with pytest.raises(UnknownEntryError):
        runs.get(team.id, 9)


def test_of_runs_that_have_ended_the_newest_are_kept(
    database: Database, team: TeamRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that starts and cancels runs again and again does not fill the database; open runs stay."""
    monkeypatch.setattr(runs_module, "MAX_RUNS_KEPT", 3)
    runs = TeamRunTable(database)
    first = runs.add(team.id, b"work", "")
    for _ in range(6):
        runs.cancel(team.id, runs.add(team.id, b"work", "").number)
    assert [7, 6, 5, first.number] == [run.number for run in runs.of(team.id, 100)]
    assert [first.number] == [run.number for run in runs.open(team.id)]


def test_one_run_after_the_other(database: Database, team: TeamRow) -> None:
    """The running one comes before the waiting ones; cancelled ones are left out."""
    runs, ledger = TeamRunTable(database), TeamLedger(database, team.id)
    for _ in range(3):
        runs.add(team.id, b"", "")
    ledger.begin_run(1)
    runs.cancel(team.id, 2)
    assert ("running", 1) == ((run := ledger.next_run()) and run.state, run and run.number)
    ledger.end_run(1, "done", outcome=b"outcome")
    assert ("done", b"outcome") == ((run := runs.get(team.id, 1)).state, run.outcome)
    assert 3 == ((run := ledger.next_run()) and run.number)
    ledger.begin_run(3)
    assert not ledger.is_cancelled(3)
    runs.cancel(team.id, 3)
    assert ledger.is_cancelled(3)


def test_the_later_of_two_writes(database: Database, team: TeamRow) -> None:
    """The earlier writer gets an error at its next write, and changes nothing."""
    former = TeamLedger(database, team.id)
    later = TeamLedger(database, team.id)
    for write in (
        lambda: former.save_state("{}"),
        lambda: former.tell([news("text")]),
        lambda: former.note(Note(agent="a", place="p", number=0, kind="turn", data="")),
        lambda: former.end_run(1, "done"),
    ):
        with pytest.raises(SupersededError):
            write()
    later.save_state("{}")
    assert ("{}", 2, []) == (later.team.state, later.team.epoch, later.notes())


def test_a_team_that_was_deleted(database: Database, team: TeamRow) -> None:
    """The process that works on it gets an error."""
    ledger = TeamLedger(database, team.id)
    TeamTable(database).remove(team.tenant, team.id)
    with pytest.raises(SupersededError):
        ledger.save_state("{}")
    with pytest.raises(SupersededError):
        ledger.is_cancelled(1)


def test_notes_and_news_in_one_stroke(database: Database, team: TeamRow) -> None:
    """Events are numbered without gaps; notes keep their order; the end of a run drops notes and adds an event."""
    ledger, table = TeamLedger(database, team.id), TeamEventTable(database)
    ledger.tell([news("text", content="x" * (MAX_EVENT_CONTENT + 1)), news("code")])
    ledger.note(Note(agent="a", place="p", number=0, kind="turn", data="1"), before=[news("code")])
    assert ["1"] == [note.data for note in ledger.notes()]
    assert [1, 2, 3] == [each.number for each in table.after(team.id, 0)]
    assert MAX_EVENT_CONTENT == len(table.after(team.id, 0)[0].content)
    assert [3] == [each.number for each in table.after(team.id, 2)]
    assert 2 == ledger.told(1, "a", "p", "text")
    ledger.end_run(1, "failed", error="why")
    assert [] == ledger.notes()
    assert ("failed", "why") == ((last := table.after(team.id, 3)[0]).kind, last.content)


def test_old_news_are_dropped(database: Database, team: TeamRow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed number stays, and numbers go on."""
    monkeypatch.setattr(news_module, "MAX_EVENTS_KEPT", 3)
    ledger, table = TeamLedger(database, team.id), TeamEventTable(database)
    ledger.tell([news("code") for _ in range(5)])
    assert (3, 5) == table.kept(team.id)


def test_the_run_that_no_process_completes_is_given_up(database: Database, team: TeamRow) -> None:
    """The one under way, else the first that waits: its processes ended before they could begin it."""
    runs, events = TeamRunTable(database), TeamEventTable(database)
    ledger = TeamLedger(database, team.id)
    for _ in range(3):
        runs.add(team.id, b"work", "")
    ledger.begin_run(1)
    for number in (1, 2):
        runs.give_up(team.id, f"reason {number}")
        assert ("failed", f"reason {number}") == (
            runs.get(team.id, number).state,
            runs.get(team.id, number).error,
        )
        last = events.after(team.id, 0)[-1]
        assert ("failed", number, f"reason {number}") == (last.kind, last.run, last.content)
    assert [3] == [run.number for run in runs.open(team.id)]
    runs.give_up(team.id, "the last")
    runs.give_up(team.id, "none is left")
    assert [] == runs.open(team.id)
