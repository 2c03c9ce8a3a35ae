"""DuckDB databases in states that are rolled back to: unchanged, with threads, and without visible traces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote import PythonRuntime
from cenote.runtime import ExecutionResult

pytest.importorskip("duckdb")

CRASH = "import os; os._exit(3)"
KIND = "duckdb.DuckDBPyConnection"
THREADS = "len(os.listdir('/proc/self/task'))"
SETTINGS = "con.execute('select name, value, scope from duckdb_settings() order by name').fetchall()"


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime() as runtime:
        runtime.execute("import duckdb, os\ncon = duckdb.connect()")
        yield runtime


def good(runtime: PythonRuntime, code: str) -> str:
    result = runtime.execute(code)
    assert result.error is None, result.error
    return result.value or ""


def crash(runtime: PythonRuntime) -> ExecutionResult:
    result = runtime.execute(f"con.execute('create or replace table lost as select 1')\n{CRASH}")
    assert "rolled_back" == result.state
    return result


@pytest.mark.slow
def test_a_table_survives_a_crash(runtime: PythonRuntime) -> None:
    """Queries over it have as many threads as before, after each crash."""
    good(runtime, "con.execute('create table t as select range as a, range % 7 as b from range(300000)');")
    threads, settings = good(runtime, THREADS), good(runtime, SETTINGS)
    query = "con.execute('select b, sum(a) from t group by b order by b').fetchall()"
    wanted = good(runtime, query)
    for _ in range(2):
        crash(runtime)
        assert (wanted, threads, settings) == tuple(
            good(runtime, each) for each in (query, THREADS, SETTINGS)
        )
        assert "[('t',)]" == good(runtime, "con.execute('show tables').fetchall()")
    good(runtime, "con.close()")
    assert "1" == good(runtime, THREADS)


BEGUN = """
con.execute("create table t as select range as a from range(100000)")
con.create_function("plus", lambda x: x + 1, ["BIGINT"], "BIGINT")
con.execute("prepare more as select a + ? from t where a = 3")
con.execute("attach ':memory:' as other; create table other.u as select 5 as a")
con.execute("set threads = 3; set async_threads = 2")
doing, giving, streaming = con.cursor(), con.cursor(), con.cursor()
doing.begin()
doing.execute("update t set a = a + 1")
giving.execute("select a from t order by a")
giving.fetchmany(2)
batches = streaming.sql("select a from t").to_arrow_reader(1000)
count = batches.read_next_batch().num_rows
"""


@pytest.mark.slow
def test_what_was_begun_goes_on_behind_a_crash(runtime: PythonRuntime) -> None:
    """A transaction, unfetched rows, batches, prepared statements, attached databases, functions, settings."""
    good(runtime, BEGUN)
    before = good(runtime, THREADS)
    crash(runtime)
    assert before == good(runtime, THREADS)
    assert "(3, 2)" == good(
        runtime,
        "con.execute(\"select current_setting('threads'), current_setting('async_threads')\").fetchone()",
    )
    assert "[(2,), (3,)]" == good(runtime, "giving.fetchmany(2)")
    assert "99996" == good(runtime, "len(giving.fetchall())")
    assert "100000" == good(runtime, "count + sum(each.num_rows for each in batches)")
    assert "[(8,)]" == good(runtime, "con.execute('execute more(5)').fetchall()")
    assert "[(6,)]" == good(runtime, "con.execute('select plus(a) from other.u').fetchall()")
    assert "(1,)" == good(runtime, "doing.execute('select min(a) from t').fetchone()")
    good(runtime, "doing.rollback()")
    assert "(0,)" == good(runtime, "con.execute('select min(a) from t').fetchone()")


@pytest.mark.slow
def test_each_database_in_memory_is_kept(runtime: PythonRuntime) -> None:
    """Several, and the module's default one."""
    good(
        runtime,
        "two = duckdb.connect(); cursor = two.cursor(); duckdb.sql('create table t as select 1 as a')",
    )
    good(runtime, "cursor.execute('create table t as select 2 as a');")
    before = good(runtime, THREADS)
    crash(runtime)
    assert before == good(runtime, THREADS)
    assert "([(1,)], [(2,)])" == good(
        runtime, "duckdb.table('t').fetchall(), two.execute('from t').fetchall()"
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    "held",
    [
        "base = duckdb.connect('base.duckdb')",
        "con.execute(\"attach 'base.duckdb' as base\");",
        "con.execute('set lock_configuration = true');",
        "con.execute(\"call enable_logging(storage = 'memory')\");",
        "con.execute(\"set memory_limit = '40MB'; set temp_directory = 'spilt'\")\n"
        "con.execute('create table t as select range as a, md5(range::varchar) as b from range(1000000)');",
    ],
    ids=("a file", "an attached file", "locked settings", "a log", "memory on disk"),
)
def test_no_state_is_kept_that_two_processes_would_share(runtime: PythonRuntime, held: str) -> None:
    """Or where storing it would be visible. Threads and settings are unchanged."""
    good(runtime, held)
    before = good(runtime, THREADS), good(runtime, SETTINGS)
    result = runtime.execute("x = 1")
    assert "threads of DuckDB" in (result.unkept or "")
    assert before == (good(runtime, THREADS), good(runtime, SETTINGS))


def test_a_log_has_one_question_of_ours_at_most(runtime: PythonRuntime) -> None:
    good(runtime, "con.execute(\"call enable_logging(storage = 'memory')\");")
    for _ in range(4):
        good(runtime, "x = 1")
    good(runtime, "con.execute(\"select message from duckdb_logs() where message like '%system.main%'\")")
    assert "1" == good(runtime, "len([each for (each,) in con.fetchall() if 'duckdb_logs' not in each])")


def test_nobody_is_called_who_has_changed_the_library(runtime: PythonRuntime) -> None:
    good(runtime, f"asked = []\n{KIND}.cursor = {KIND}.execute = lambda self, *given: asked.append(given)")
    assert "rolled_back" == runtime.execute(CRASH).state
    assert "[]" == good(runtime, "asked")


def test_names_of_the_user_are_not_taken_for_those_of_duckdb(runtime: PythonRuntime) -> None:
    good(runtime, "con.execute('create macro current_setting(x) as 1')")
    good(runtime, "con.execute('create macro duckdb_databases() as table select 2 as path')")
    before = good(runtime, THREADS)
    crash(runtime)
    assert before == good(runtime, THREADS)
