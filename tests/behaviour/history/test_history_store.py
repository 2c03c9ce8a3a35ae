"""Histories in a database: written events persist, whatever happens to the writer."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.descriptors import locks_on
from tests.support.history.records import records, traced
from tests.waiting import PATIENCE

from cenote_security.errors import (
    HistoryTakenError,
    HistoryUnavailableError,
    NewerHistoryError,
    UsageError,
)
from cenote_worker.execution.trace import Location, name
from cenote_worker.history import store, store_writer
from cenote_worker.history.events import Event, HeadMoved
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.history.store import VERSION, HistoryStore, StoredHistories
from cenote_worker.history.store_writer import WriteBehind, open_history

WRITER = """
import sys
from cenote_worker.history.step import StepRecord
from cenote_worker.history.store_writer import open_history
history = open_history(sys.argv[1], "r")
for number in range(1, 100_000):
    history.ended(StepRecord(number=number, code="x = 1", stdout="y" * 1000))
    if number % 50 == 0:
        history.flush()
        print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "history.sqlite"


def steps(path: Path) -> list[int]:
    """Numbers of the steps that the next process reads."""
    with closing(open_history(path, "r")) as history:
        return [each.number for each in history.tree]


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_history_comes_back_as_it_was(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Steps of any kind, and moves of the head in between."""
    place = tmp_path_factory.mktemp("round") / "history.sqlite"
    history = open_history(place, "r")
    for number in range(1, data.draw(st.integers(1, 5))):
        history.ended(data.draw(records(number)))
        history.moved(data.draw(st.sampled_from([0, *(record.number for record in history.tree)])), "test")
    history.close()
    again = open_history(place, "r")
    again.close()
    assert (list(history.tree), history.tree.head, history.id) == (
        list(again.tree),
        again.tree.head,
        again.id,
    )


def test_a_history_goes_on_where_it_ended(path: Path) -> None:
    """The second writer's steps follow the first one's."""
    for number in (1, 2):
        history = open_history(path, "r")
        history.ended(StepRecord(number=number))
        history.close()
    again = open_history(path, "r")
    again.close()
    assert [(1, 0), (2, 1)] == [(record.number, record.parent) for record in again.tree]


@pytest.mark.slow
def test_what_was_flushed_survives_the_death_of_its_writer(path: Path) -> None:
    """Killed in the middle of writing: flushed steps are complete, and later ones follow without a gap."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        flushed = [int(writer.stdout.readline()) for _ in range(3)]
        os.kill(writer.pid, signal.SIGKILL)
    history = open_history(path, "r")
    history.close()
    numbers = [record.number for record in history.tree]
    assert flushed[-1] <= len(numbers)
    assert list(range(1, len(numbers) + 1)) == numbers
    assert {"y" * 1000} == {record.stdout for record in history.tree}


def test_results_that_were_shed_leave_the_database_too(path: Path) -> None:
    """So that the database does not grow with all output."""
    history = open_history(path, "r")
    history._room = 100
    for number in (1, 2, 3):
        history.ended(StepRecord(number=number, stdout="x" * 60))
    history.close()
    again = open_history(path, "r")
    again.close()
    assert ["", "", "x" * 60] == [record.stdout for record in again.tree]


def test_several_runtimes_in_one_database(path: Path) -> None:
    """Each has its own steps; a file has one writer at a time."""
    for runtime, code in (("one", "1"), ("two", "2")):
        history = open_history(path, runtime)
        history.ended(StepRecord(number=1, code=code))
        history.close()
    for runtime, code in (("one", "1"), ("two", "2")):
        again = open_history(path, runtime)
        again.close()
        assert [code] == [record.code for record in again.tree]


def test_a_second_writer_is_refused(path: Path) -> None:
    """As long as the first one lives; also one of the same process."""
    with HistoryStore(path, "r"), pytest.raises(HistoryTakenError, match="another runtime"):
        HistoryStore(path, "r")
    HistoryStore(path, "r").close()


def test_a_refused_writer_releases_no_lock(path: Path) -> None:
    """Nor does a reader: without its locks SQLite would let another process remove what this one has mapped."""
    with HistoryStore(path, "r") as history:
        history.size()
        before = locks_on(path, Path(f"{path}-shm"))
        assert all(before)
        with pytest.raises(HistoryTakenError):
            HistoryStore(path, "r")
        assert before == locks_on(path, Path(f"{path}-shm"))
        with closing(StoredHistories.at(path)) as reader:
            reader.runtimes()
        assert before == locks_on(path, Path(f"{path}-shm"))


def about(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The runtimes that lines of the log are about."""
    return [str(getattr(record, "runtime", "")) for record in caplog.records]


def test_a_writer_that_was_replaced_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where file locks do not work, the database records who opened the history last."""
    history = open_history(path, "r")
    history.ended(StepRecord(number=1))
    history.flush()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE histories SET writer = 'another'")
    other.close()
    history.ended(StepRecord(number=2))
    with pytest.raises(HistoryTakenError):
        history.flush()
    assert [1, 2] == [record.number for record in history.tree]
    history.close()
    assert 2 * ["r"] == about(caplog)
    again = open_history(path, "r")
    again.close()
    assert [1] == [record.number for record in again.tree]


def test_a_database_that_others_hold_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Longer than SQLite waits: a flush raises, and later events are stored in the end."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.0)
    history = open_history(path, "r")
    with sqlite3.connect(path) as other:
        other.execute("BEGIN IMMEDIATE")
        for number in (1, 2):
            history.ended(StepRecord(number=number))
            with pytest.raises(HistoryUnavailableError, match="locked"):
                history.flush()
        other.rollback()
    other.close()
    history.ended(StepRecord(number=3))
    history.flush()
    history.close()
    assert [1, 2, 3] == steps(path)
    assert 2 * ["r"] == about(caplog)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_is_gone_is_missed(path: Path, replaced: bool) -> None:
    """SQLite would continue to write to a file without a name. Once restored, the file is used again."""
    history = open_history(path, "r")
    history.ended(StepRecord(number=1))
    history.flush()
    kept = path.rename(path.with_name("kept"))
    if replaced:
        path.write_bytes(b"")
    history.ended(StepRecord(number=2))
    with pytest.raises(HistoryUnavailableError, match="another file" if replaced else "No such file"):
        history.flush()
    kept.rename(path)
    history.close()
    assert [1, 2] == steps(path)


def test_what_was_written_though_it_failed_is_written_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the connection to a server breaks after a commit, before its answer."""
    write = HistoryStore.write

    def written(self: HistoryStore, *events: object) -> None:
        write(self, *events)  # type: ignore[arg-type]
        monkeypatch.undo()
        raise HistoryUnavailableError(self.place, "the line broke")

    history = open_history(path, "r")
    monkeypatch.setattr(HistoryStore, "write", written)
    history.ended(StepRecord(number=1))
    with pytest.raises(HistoryUnavailableError, match="line broke"):
        history.flush()
    history.ended(StepRecord(number=2))
    history.flush()
    history.close()
    assert [1, 2] == steps(path)


def test_nobody_waits_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a store that does not answer: neither `flush` nor `close` waits for ever."""
    answers = threading.Event()
    monkeypatch.setattr(HistoryStore, "write", lambda *_: answers.wait())
    keep = WriteBehind(HistoryStore(path, "r"), patience=0.1)
    keep.add(0, StepRecord(number=1))
    with pytest.raises(HistoryUnavailableError, match=r"no answer for 0\.1 seconds"):
        keep.flush()
    keep.close()
    answers.set()


def test_too_much_that_waits_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history must not have a gap: earlier events remain, and a flush raises at once."""
    monkeypatch.setattr(store_writer, "MAX_WAITING", 3)
    answers = threading.Event()
    write = HistoryStore.write
    with monkeypatch.context() as patched:
        patched.setattr(HistoryStore, "write", lambda *_: answers.wait() and write(*_))
        history = open_history(path, "r")
        for number in range(1, 6):
            history.ended(StepRecord(number=number))
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(history.flush)
            done, _ = wait([refused], PATIENCE)  # long enough for the wait for a store to end with an error
            answers.set()
            assert done, "it waited for a store that is not written to any more"
            with pytest.raises(HistoryUnavailableError, match="3 events wait"):
                refused.result()
        history.close()
    found = steps(path)
    assert list(range(1, len(found) + 1)) == found


def test_a_newer_schema_is_refused(path: Path) -> None:
    """And left unchanged."""
    HistoryStore(path, "r").close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE history_schema SET version = 99")
    database.close()
    before = path.read_bytes()
    with pytest.raises(NewerHistoryError, match="has schema 99"):
        HistoryStore(path, "r")
    assert before == path.read_bytes()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_an_older_schema_is_gone_on_with(path: Path, version: int) -> None:
    """Its content is read unchanged; the schema number is raised, so that older versions notice the additions."""
    HistoryStore(path, "r").close()
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE history_schema SET version = {version}")
    database.close()
    history = open_history(path, "r")
    digest = history.keep_file(b"written by a client")
    history.keep_value("digest", b"put in by a client")
    history.close()
    again = open_history(path, "r")
    again.close()
    assert {digest: b"written by a client"} == again.files
    assert {"digest": b"put in by a client"} == again.values
    with sqlite3.connect(path) as database:
        assert [(VERSION,)] == list(database.execute("SELECT version FROM history_schema"))
    database.close()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """And left unchanged."""
    path.parent.mkdir()
    path.write_bytes(b"not a database, but somebody's file" * 100)
    with pytest.raises(HistoryUnavailableError, match="not a database"):
        HistoryStore(path, "r")
    assert path.read_bytes().startswith(b"not a database")


def test_a_torn_file_is_refused(path: Path) -> None:
    """Its second half is missing: an error says so, instead of half a history."""
    history = open_history(path, "r")
    for number in range(1, 200):
        history.ended(StepRecord(number=number, stdout="x" * 500))
    history.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(HistoryUnavailableError, match="malformed"):
        open_history(path, "r")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE history_events SET event = x'ff' WHERE position = 1", "event 1 is damaged"),
        ("DELETE FROM history_events WHERE position = 1", "event 1 is missing"),
    ],
)
def test_damaged_events_are_named(path: Path, damage: str, said: str) -> None:
    """A history with a gap is invalid."""
    history = open_history(path, "r")
    for number in (1, 2, 3):
        history.ended(StepRecord(number=number))
    history.close()
    with sqlite3.connect(path) as database:
        database.execute(damage)
    database.close()
    with pytest.raises(HistoryUnavailableError, match=said):
        open_history(path, "r")
    os.unlink(path)  # the failed attempt released it
    open_history(path, "r").close()


def test_the_file_is_its_owners(path: Path) -> None:
    """Code and output are private to the owner."""
    open_history(path, "r").close()
    assert (0o700, 0o600) == (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777)


def test_a_url_that_is_none() -> None:
    """A usage error, before anything is opened."""
    with pytest.raises(UsageError, match="neither a path nor the URL"):
        HistoryStore("://nowhere", "r")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://nobody@localhost:1/nothing", "Connection refused"),
        ("mysql+nodriver://localhost/nothing", "nodriver"),
        ("mysql+mysqldb://localhost/nothing", "pip install"),
    ],
)
def test_a_database_that_cannot_be_reached(url: str, said: str) -> None:
    """No server listens there, or its driver is missing."""
    with pytest.raises(HistoryUnavailableError, match=said):
        HistoryStore(url, "r")


def test_a_url_of_sqlite(path: Path) -> None:
    """It means the same as the path."""
    path.parent.mkdir()
    events: list[tuple[int, Event]] = [(0, StepRecord(number=1)), (1, HeadMoved(head=0))]
    with HistoryStore(f"sqlite:///{path}", "r") as store:
        store.write(events)
    with HistoryStore(path, "r") as store:
        assert [event for _, event in events] == list(store.events())


def test_steps_are_found_by_what_they_are(path: Path) -> None:
    """By author, time and location, without reading the others."""
    steps = [
        StepRecord(number=1, author="ana", started=10, trace=traced(writes=["x"])),
        StepRecord(number=2, author="ben", started=20, trace=traced(reads=["x"])),
        StepRecord(number=3, author="ana", started=30, trace=traced(writes=["y"])),
        StepRecord(number=4, author="ana", private=True, started=40, trace=traced(writes=["x"])),
    ]
    with HistoryStore(path, "r") as store:
        store.write(list(enumerate(steps)))
        assert [1, 3, 4] == store.find(author="ana")
        assert [2, 3] == store.find(since=20, until=40)
        assert [1, 2] == store.find(location=name("x"))
        assert [4] == store.find(location=Location("name:ana/x"))
        assert [] == store.find(author="ana", location=name("z"))


def test_nothing_is_written_in_part(path: Path) -> None:
    """A batch with a used position writes nothing."""
    with HistoryStore(path, "r") as store:
        store.write([(0, StepRecord(number=1))])
        with pytest.raises(HistoryUnavailableError):
            store.write([(1, StepRecord(number=2)), (0, StepRecord(number=3))])
        assert [1] == store.find()
        assert 1 == len(list(store.events()))


def test_a_history_without_a_place_keeps_nothing() -> None:
    """Flushing and closing it is allowed."""
    history = History()
    history.flush()
    history.close()


# -- reading beside a writer --


def test_a_reader_disturbs_no_writer(path: Path) -> None:
    """It sees what is written, from a position on, and neither claims the history nor leaves a file."""
    with closing(open_history(path, "r")) as history:
        history.ended(StepRecord(number=1, code="x = 1"))
        history.flush()
        stored = StoredHistories.at(path)
        assert {"r": history.id} == stored.runtimes()
        assert [history.event(0)] == list(stored.events("r"))
        history.ended(StepRecord(number=2, code="x = 2"))
        history.flush()
        assert [history.event(1)] == list(stored.events("r", 1))
        assert [] == list(stored.events("other"))
    before = path.read_bytes(), sorted(os.listdir(path.parent))
    assert 2 == len(list(stored.events("r")))
    stored.close()
    assert before == (path.read_bytes(), sorted(os.listdir(path.parent)))


def test_a_reader_refuses_what_a_writer_refuses(path: Path) -> None:
    """A later schema, a missing event, no database, no file; it makes none of them."""
    with pytest.raises(HistoryUnavailableError):
        StoredHistories.at(path)
    assert not path.parent.exists()
    with closing(open_history(path, "r")) as history:
        for number in (1, 2, 3):
            history.ended(StepRecord(number=number, code="x = 1"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM history_events WHERE position = 1")
    with pytest.raises(HistoryUnavailableError, match="event 1 is missing"):
        list(StoredHistories.at(path).events("r"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE history_schema SET version = 99")
    with pytest.raises(NewerHistoryError, match="has schema 99"):
        StoredHistories.at(path)
    path.write_text("no database " * 1000)
    with pytest.raises(HistoryUnavailableError):
        StoredHistories.at(path)
