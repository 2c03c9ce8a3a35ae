"""Histories in PostgreSQL: the same as in a file, for many runtimes in one database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.history.records import records, traced
from tests.support.postgresql_server import PostgresqlServer

from cenote.runtime import PythonRuntime
from cenote_security.errors import HistoryTakenError, HistoryUnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.trace import Location, name
from cenote_worker.history import store
from cenote_worker.history.step import StepRecord
from cenote_worker.history.store import HistoryStore
from cenote_worker.history.store_writer import open_history

SMALL = SandboxPolicy(preload=(), snapshots="none")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as server:
        yield server


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the server fixture is not function-scoped
@given(data=st.data())
def test_a_history_comes_back_as_it_was(server: PostgresqlServer, data: st.DataObject) -> None:
    """Steps of any kind, whatever characters their texts have."""
    runtime = uuid.uuid4().hex
    history = open_history(server.url, runtime)
    for number in range(1, data.draw(st.integers(2, 5))):
        record = data.draw(records(number))
        history.ended(replace(record, author=record.author.replace("\0", "")))  # authors are printable
    history.close()
    again = open_history(server.url, runtime)
    assert list(history.tree) == list(again.tree)
    again.close()


def test_a_runtime_writes_its_steps_there(server: PostgresqlServer) -> None:
    """By URL, which need not name the driver, and reads them again."""
    url = server.url.replace("+psycopg", "")
    with PythonRuntime(sandbox=SMALL, name="first", history=url) as runtime:
        runtime.execute("x = 20", cause="model call 17")
        runtime.execute("y = x + 1")
    with PythonRuntime(sandbox=SMALL, name="first", history=url) as runtime:
        assert ["x = 20", "y = x + 1"] == [step.code for step in runtime.state.steps if step.code]
        assert "model call 17" == runtime.state.steps[0].cause


def test_runtimes_do_not_see_each_others_steps(server: PostgresqlServer) -> None:
    """Though they share the tables."""
    with HistoryStore(server.url, "ours") as ours, HistoryStore(server.url, "theirs") as theirs:
        ours.write([(0, StepRecord(number=1, author="ana", trace=traced(writes=["x"])))])
        assert ([1], []) == (ours.find(location=name("x")), theirs.find(location=name("x")))
        assert ours.id != theirs.id


@pytest.mark.parametrize("symbol", ["x" * 9_000, "a\0b", "ü" * 450])
def test_a_name_that_no_index_takes_is_found(server: PostgresqlServer, symbol: str) -> None:
    """Longer than an index's entries, with a character that its texts cannot have, or long in bytes."""
    with HistoryStore(server.url, f"odd {len(symbol)}") as store:
        trace = traced(writes=[symbol, symbol + "b"])
        store.write([(0, StepRecord(number=1, trace=trace)), (1, StepRecord(number=2))])
        assert [1] == store.find(location=name(symbol))
        assert [] == store.find(location=Location(f"name:{symbol}c"))


@pytest.mark.slow
def test_a_second_writer_puts_the_first_out(server: PostgresqlServer) -> None:
    """The first one's steps are refused from then on, rather than mixed with the other's."""
    first = HistoryStore(server.url, "contested")
    first.write([(0, StepRecord(number=1))])
    with HistoryStore(server.url, "contested") as second:
        with pytest.raises(HistoryTakenError):
            first.write([(1, StepRecord(number=2))])
        second.write([(1, StepRecord(number=3))])
        assert [1, 3] == second.find()
    first.close()


def test_a_server_that_dies_is_told_of(server: PostgresqlServer) -> None:
    """Written steps exist when it is back, and the same store continues."""
    with HistoryStore(server.url, "survivor") as store:
        store.write([(0, StepRecord(number=1))])
        server.kill()
        with pytest.raises(HistoryUnavailableError):
            store.write([(1, StepRecord(number=2))])
        server.start()
        with pytest.raises(HistoryUnavailableError):
            HistoryStore(server.url.replace("/postgres?", "/nowhere?"), "r")
        store.write([(1, StepRecord(number=2))])
        assert [1, 2] == store.find()


def test_a_server_that_comes_back_gets_what_waited(server: PostgresqlServer) -> None:
    """Steps run during the outage are not lost, and a flush says that they wait."""
    history = open_history(server.url, "patient")
    history.ended(StepRecord(number=1))
    history.flush()
    server.kill()
    history.ended(StepRecord(number=2))
    with pytest.raises(HistoryUnavailableError, match="Is the server running"):
        history.flush()
    server.start()
    history.ended(StepRecord(number=3))
    history.close()
    with HistoryStore(server.url, "patient") as store:
        assert [1, 2, 3] == store.find()


@pytest.mark.slow
def test_a_server_that_hangs_is_an_error(server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For writers and for openers: neither waits longer than the timeout."""
    with monkeypatch.context() as hasty:
        hasty.setitem(store._SERVER, "connect_timeout", 2)  # type: ignore[index]
        history = open_history(server.url, "hung")
        with server.stopped():
            history.ended(StepRecord(number=1))
            with pytest.raises(HistoryUnavailableError, match="timeout"):
                history.flush()
            with pytest.raises(HistoryUnavailableError, match="timeout"):
                HistoryStore(server.url, "other")
    history.close()
    with HistoryStore(server.url, "hung") as again:
        assert [1] == again.find()


def test_many_may_begin_with_an_empty_database(server: PostgresqlServer) -> None:
    """At once: one of them creates the tables, and the others find them."""
    server.execute("CREATE DATABASE fresh")
    url = server.url.replace("/postgres?", "/fresh?")
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda number: _id(url, str(number)), range(8)))
    assert 8 == len(ids)


def _id(url: str, runtime: str) -> str:
    with HistoryStore(url, runtime) as store:
        return store.id
