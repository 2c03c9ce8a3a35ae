"""Batches go through a jail and return as tables; an error of the function costs its batch only."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from cenote import PythonRuntime, SandboxPolicy
from cenote.data import BatchFailedError, SchemaMismatchError, runner
from cenote.data import runner as splitting
from cenote.data.runner import (
    HOPELESS,
    HOPELESS_AGAIN,
    PARTS,
    BatchFormat,
    BatchRunner,
    FunctionParcel,
    Splitting,
)
from cenote.data.schemas import AgreedSchema, SchemaAgreement
from cenote.errors import UsageError

POLICY = SandboxPolicy(memory="300MiB", preload=("numpy", "pandas", "pyarrow"), cell_timeout=60)

SOURCE = """
import os
import pyarrow as pa
calls = 0

def frame(batch):
    batch["double"] = batch.n * 2
    return batch[batch.n != 1]

def table(batch): return batch.append_column("half", pa.array([value / 2 for value in batch["n"].to_pylist()]))
def columns(batch): return {"n": batch["n"] + 1, "words": ["a"] * len(batch["n"])}
def grouped(batch): return batch.groupby(batch.n % 2).agg(total=("n", "sum"))
def number(batch): return 3
def claims(batch): return batch.assign(error="no")

def odd(batch):
    global calls
    calls += 1
    if (batch.n == 13).any():
        raise ValueError("thirteen")
    if (batch.n == 14).any():
        os._exit(3)
    if (batch.n == 15).any():
        batch["n"] = list(bytearray(10**9))
    if (batch.n == 16).any():
        while True: pass
    return batch.assign(calls=calls)
"""


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def run(name: str, batch: pa.Table, form: BatchFormat = "pandas", errors_to: str | None = None) -> pa.Table:
    with BatchRunner(FunctionParcel(name=name, source=SOURCE), POLICY, form, errors_to) as runs:
        return runs(batch)


@pytest.fixture(scope="module")
def odd() -> Iterator[BatchRunner]:
    policy = replace(POLICY, cell_timeout=5)  # for functions that must end within it, also on a busy machine
    with BatchRunner(FunctionParcel(name="odd", source=SOURCE), policy, "pandas", "error") as runs:
        yield runs


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("frame", "pandas", {"n": [0, 2], "double": [0, 4]}),
        ("table", "pyarrow", {"n": [0, 1, 2], "half": [0.0, 0.5, 1.0]}),
        ("columns", "numpy", {"n": [1, 2, 3], "words": ["a", "a", "a"]}),
        ("grouped", "pandas", {"n": [0, 1], "total": [2, 1]}),
    ],
)
def test_batches_come_as_asked_for(name: str, form: BatchFormat, expected: object) -> None:
    """Batches arrive and return as a frame, a table or columns. A counting index is left out; a named one is data."""
    assert expected == run(name, rows(0, 1, 2), form).to_pydict()


def test_a_part_of_a_table_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is cut into batches, each of which is a view of the whole."""
    sizes = []
    monkeypatch.setattr(
        runner, "as_stream", lambda batch, own=runner.as_stream: sizes.append(own(batch).nbytes) or own(batch)
    )
    assert {"n": [7, 8], "double": [14, 16]} == run("frame", rows(*range(100_000)).slice(7, 2)).to_pydict()
    assert max(sizes) < 1_000


@pytest.mark.parametrize(
    ("name", "errors_to", "said"),
    [
        ("number", None, "number returned int; return a DataFrame"),
        ("missing", None, "NameError"),
        ("claims", "error", "has a column 'error', which errors go to"),
    ],
)
def test_what_is_no_result_is_said(name: str, errors_to: str | None, said: str) -> None:
    """The error passes from Ray's process to the waiting one."""
    with BatchRunner(FunctionParcel(name=name, source=SOURCE), POLICY, "pandas", errors_to) as runs:
        with pytest.raises(BatchFailedError) as caught:
            runs._apply(rows(1))
        assert said in str(pickle.loads(pickle.dumps(caught.value)))


def test_source_that_fails_fails_the_batch() -> None:
    """No other information is available."""
    parcel = FunctionParcel(name="f", source="def f(batch) return batch")
    with (
        BatchRunner(parcel, POLICY, "pandas", None) as runs,
        pytest.raises(BatchFailedError, match="SyntaxError"),
    ):
        runs(rows(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "reason"), [(13, "exception"), (14, "exit"), (15, "memory"), (16, "time")]
)
def test_a_batch_that_fails_is_kept(odd: BatchRunner, number: int, reason: str) -> None:
    """The failing row has the error next to it; the next batch sees nothing of it."""
    calls = odd(rows(1))["calls"].to_pylist()[0]
    fine = {"n": [1], "calls": [calls + 1], "error": [None], "error_batch": [None]}
    assert fine == odd(rows(1)).to_pydict()
    row, other = odd(rows(number, 1)).to_pylist()
    assert row["error"].startswith(f"{reason}: "), row["error"]
    assert "earlier cells" not in row["error"]
    assert rows(number).equals(pa.ipc.open_stream(row["error_batch"]).read_all())
    assert (1, None) == (other["n"], other["error"])
    assert [2] == odd(rows(2))["calls"].to_pylist()  # of the jail that was made for the other row


SPOILED = """
import pandas as pd
seen = []

def spoiled(batch):
    seen.append(len(batch))
    if batch.n.isin(BAD).any():
        raise ValueError(sorted(set(BAD) & set(batch.n))[0])
    return batch.assign(word=batch.n.map(str), calls=len(seen))
"""


def spoiled(*bad: int) -> FunctionParcel:
    return FunctionParcel(name="spoiled", source=f"BAD = {bad!r}\n{SPOILED}")


@pytest.mark.slow
def test_bad_rows_stand_alone() -> None:
    """Each has its own error, in its place among the others, none of which is lost."""
    bad, size = (0, 77, 78, 500, 999), 1000
    with BatchRunner(spoiled(*bad), POLICY, "pandas", "error") as runs:
        table = runs(rows(*range(size)))
    for position, row in enumerate(table.to_pylist()):
        if position in bad:
            assert f"ValueError: {position}" in row["error"]
            assert rows(position).equals(pa.ipc.open_stream(row["error_batch"]).read_all())
            assert [None] * 3 == [row["n"], row["word"], row["calls"]]
        else:
            assert (position, str(position), None, None) == (
                row["n"],
                row["word"],
                row["error"],
                row["error_batch"],
            )
    assert size == table.num_rows


def test_many_bad_rows_stand_alone_too() -> None:
    """So many that every large part contains one."""

    def attempt(start: int, rows: int) -> pa.Table | BatchFailedError:
        bad = any(each % 10 == 0 for each in range(start, start + rows))
        return BatchFailedError("f", rows, "bad", "exception") if bad else pa.table({"n": [1]})

    found = Splitting().parts(1_000, BatchFailedError("f", 1_000, "bad", "exception"), attempt)
    bad = [(part.start, part.rows) for part in found if isinstance(part.came_to, BatchFailedError)]
    assert [(start, 1) for start in range(0, 1_000, 10)] == bad
    assert 1_000 == sum(part.rows for part in found)


def test_a_function_that_works_on_no_row_alone() -> None:
    """Parts that it works on are still found."""

    def attempt(start: int, rows: int) -> pa.Table | BatchFailedError:
        bad = rows < 3 or start <= 100 < start + rows
        return BatchFailedError("f", rows, "bad", "exception") if bad else pa.table({"n": [1]})

    found = Splitting().parts(1_000, BatchFailedError("f", 1_000, "bad", "exception"), attempt)
    assert 2 >= sum(part.rows for part in found if isinstance(part.came_to, BatchFailedError)) - 14


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "most"), [(0, 0), (10, 12)], ids=["no budget", "budget"])
def test_the_work_for_bad_rows_is_bounded(monkeypatch: pytest.MonkeyPatch, budget: int, most: int) -> None:
    """Then the remaining rows stay together, and none is lost."""
    monkeypatch.setattr(splitting, "EACH", 1)
    tried: list[int] = []
    with BatchRunner(spoiled(*range(0, 64, 3)), POLICY, "pandas", "error") as runs:
        runs._splitting = Splitting(budget)
        attempt = runs._attempt
        monkeypatch.setattr(runs, "_attempt", lambda batch: tried.append(batch.num_rows) or attempt(batch))
        table = runs(rows(*range(64)))
    kept = [row["error_batch"] for row in table.to_pylist() if row["error"] is not None]
    again = [n for stream in kept for n in pa.ipc.open_stream(stream).read_all()["n"].to_pylist()]
    assert list(range(64)) == sorted([*again, *table["n"].drop_null().to_pylist()])
    failed = len(kept) + len([size for size in tried if size])
    assert len(tried) <= 2 * most + 2, failed


def test_a_function_that_never_works_is_given_up_soon() -> None:
    """Its batches cost little more than without splitting, and still have one schema."""
    tries: list[tuple[int, int]] = []

    def attempt(start: int, rows: int) -> BatchFailedError:
        tries.append((start, rows))
        return BatchFailedError("f", rows, "no", "exception")

    work, whole = Splitting(), BatchFailedError("f", 10**6, "no", "exception")
    first = work.parts(10**6, whole, attempt)
    assert HOPELESS <= len(tries) < HOPELESS + PARTS
    assert 10**6 == sum(part.rows for part in first)
    tries.clear()
    work.parts(10**6, whole, attempt)
    assert HOPELESS_AGAIN == len(tries)


def test_rows_that_take_all_their_time_cost_more_of_the_budget() -> None:
    """Each of these attempts waits for the time limit of a cell."""
    tries: list[int] = []

    def attempt(start: int, rows: int) -> pa.Table | BatchFailedError:
        tries.append(rows)
        slow = start <= 13 < start + rows
        return BatchFailedError("f", rows, "slow", "time") if slow else pa.table({"n": [1]})

    found = Splitting().parts(256, BatchFailedError("f", 256, "slow", "time"), attempt)
    assert [1] == [part.rows for part in found if isinstance(part.came_to, BatchFailedError)]
    assert len(tries) <= 8 * 3 + 1


def blocks_of(source: str, *batches: pa.Table, agreement: SchemaAgreement | None = None) -> list[pa.Table]:
    """Blocks of a function `f`."""
    agree = (agreement or SchemaAgreement()).agree
    with BatchRunner(FunctionParcel(name="f", source=source), POLICY, "pandas", "error", agree) as runs:
        return [runs(batch) for batch in batches]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        # A batch with only bad rows comes first.
        ("def f(b):\n if (b.n < 3).all(): 1 / 0\n return b.assign(d=b.n / 2)", {"n": "int64", "d": "double"}),
        # Columns that are empty in one batch, and integers that are missing in another.
        (
            "def f(b): return b.assign(w=b.n.map({1: 'a', 5: 'b'}), i=b.n.where(b.n != 4))",
            {"n": "int64", "w": "large_string", "i": "int64"},
        ),
        (
            "def f(b): return b.assign(l=[[] if n < 3 else ['x'] for n in b.n])",
            {"n": "int64", "l": "list<item: string>"},
        ),
        # Categories that differ between batches; columns in another order; missing columns.
        (
            "def f(b): return b.assign(c=b.n.map(str).astype('category'))",
            {"n": "int64", "c": "dictionary<values=large_string, indices=int32, ordered=0>"},
        ),
        (
            "def f(b):\n b = b.assign(m=b.n)\n return b if b.n[0] < 3 else b[['m', 'n']][:3 - b.n[0] % 2]",
            {"n": "int64", "m": "int64"},
        ),
        # Batches without remaining rows.
        ("def f(b): return b.assign(w=b.n.map(str))[b.n > 3]", {"n": "int64", "w": "large_string"}),
    ],
    ids=["all bad", "empty columns", "empty lists", "categories", "columns", "filtered"],
)
def test_all_blocks_have_one_schema(source: str, kinds: dict[str, str]) -> None:
    """Those with errors, and batches with a different schema of their own."""
    blocks = blocks_of(source, *(rows(n, n + 1, n + 2) for n in (0, 3, 6)), rows())
    schemas = [block.schema for block in blocks if block.num_rows]
    assert [{**kinds, "error": "string", "error_batch": "large_binary"}] * len(schemas) == [
        {each.name: str(each.type) for each in schema} for schema in schemas
    ]
    assert schemas == [schemas[0]] * len(schemas)


@pytest.mark.slow
def test_what_does_not_fit_the_schema_is_an_error_of_its_rows() -> None:
    """Nothing is converted to fit: no fraction is cut off, no text parsed as a number, no column dropped."""
    halves = "def f(b): return b.assign(h=b.n // 2 if (b.n < 3).all() else b.n / 2)"
    first, second = blocks_of(halves, rows(0, 1, 2), rows(4, 5, 6))
    assert [0, 0, 1] == first["h"].to_pylist()
    assert [2, None, 3] == second["h"].to_pylist()
    assert "'h' of double, which is int64 in other results" in second["error"].to_pylist()[1]
    texts = "def f(b): return b.assign(h=b.n if (b.n < 3).all() else b.n.map(str))"
    assert [None] == blocks_of(texts, rows(1), rows(4))[1]["h"].to_pylist()
    more = "def f(b): return b if (b.n < 3).all() else b.assign(more=1)"
    (error,) = blocks_of(more, rows(1), rows(4))[1]["error"].to_pylist()
    assert "a column 'more', which other results do not have; `schema=`" in error


@pytest.mark.slow
def test_what_contradicts_a_guess_ends_the_job() -> None:
    """Blocks with the guessed schema may exist already: read with them, these values would be lost or unreadable."""
    source = "def f(b):\n if (b.n < 3).any(): 1 / 0\n return b.assign(w=b.n if b.n.isin([1, 7, 100]).any() else 'a')"
    with pytest.raises(SchemaMismatchError, match="'w' of large_string, which is int64") as caught:
        blocks_of(source, rows(0, 1), rows(5))
    assert "`schema=`" in str(pickle.loads(pickle.dumps(caught.value)))
    known = SchemaAgreement()
    known.agree(AgreedSchema(schema=pa.schema({"n": pa.int64(), "w": pa.large_string()})))
    bad, good = blocks_of(source, rows(0, 1), rows(5), agreement=known)
    assert bad.schema == good.schema
    assert ["a"] == good["w"].to_pylist()
    with pytest.raises(SchemaMismatchError, match="'w' of large_string, which is double"):
        blocks_of(
            "def f(b): return b.assign(w='b' if (b.n == 5).all() else float('nan'))", rows(0, 1), rows(5)
        )


def test_processes_agree() -> None:
    """On the data that the first of them saw, also for batches that fail as a whole."""
    agreement = SchemaAgreement()
    source = "def f(b):\n if (b.n < 3).all(): 1 / 0\n return b.assign(w=b.n.map(str))"
    (good,) = blocks_of(source, rows(5), agreement=agreement)
    (bad,) = blocks_of(source, rows(0, 1), agreement=agreement)
    assert good.schema == bad.schema


def test_without_a_column_for_it_an_error_is_raised() -> None:
    """With the text that a model would read."""
    with pytest.raises(
        BatchFailedError, match=r"(?s)`odd` failed on a batch of 2 rows.*ValueError: thirteen"
    ):
        run("odd", rows(13, 1))


@pytest.mark.parametrize(("limit", "most"), [("RENEWED_AFTER", 2), ("RENEWED_AFTER_BYTES", 16)])
def test_a_jail_is_made_anew_in_time(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    """Its record of batches and its inputs end with it, so nothing grows with the dataset."""
    monkeypatch.setattr(runner, limit, most)
    with BatchRunner(FunctionParcel(name="odd", source=SOURCE), POLICY, "pandas", None) as runs:
        assert [1, 2, 1, 2, 1] == [runs(rows(1))["calls"].to_pylist()[0] for _ in range(5)]


def test_a_shared_function_takes_along_what_it_uses() -> None:
    """From its namespace, even after that has ended; it arrives under any name."""
    with PythonRuntime(sandbox=POLICY) as runtime:
        assert runtime.execute(
            "words = ['a', 'b']\ndef named(batch): return batch.assign(word=words)"
        ).success
        parcels = [FunctionParcel.of(runtime.share("named"), name) for name in (None, "other")]
    for parcel in parcels:
        with BatchRunner(pickle.loads(pickle.dumps(parcel)), POLICY, "pandas", None) as runs:
            assert {"n": [1, 2], "word": ["a", "b"]} == runs(rows(1, 2)).to_pydict()


def test_what_is_no_function_is_refused() -> None:
    """A function of this process would run outside any jail."""
    with pytest.raises(UsageError, match="would run here, outside any jail"):
        FunctionParcel.of(len, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`name` says"):
        FunctionParcel.of("def f(batch): return batch", None)
    with pytest.raises(UsageError, match="identifier"):
        FunctionParcel.of("def f(batch): return batch", "f()")
