"""Batches go through a jail and come back as tables; what the function does wrong costs its batch, and no more."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from cenote import PythonRuntime, SandboxPolicy
from cenote.data import BatchFailedError, runner
from cenote.data.parcel import FunctionParcel
from cenote.data.runner import BatchFormat, BatchRunner
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
    policy = replace(POLICY, cell_timeout=5)  # for those that are to end before it, too, on a busy machine
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
    """And go as a frame, a table or columns. An index that counts is left out; one with a name is data."""
    assert expected == run(name, rows(0, 1, 2), form).to_pydict()


def test_a_part_of_a_table_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is cut into batches, each of which is a view of all of it."""
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
    """The error survives the way from Ray's process to the one that waits."""
    with BatchRunner(FunctionParcel(name=name, source=SOURCE), POLICY, "pandas", errors_to) as runs:
        with pytest.raises(BatchFailedError) as caught:
            runs._apply(rows(1))
        assert said in str(pickle.loads(pickle.dumps(caught.value)))


def test_source_that_fails_fails_the_batch() -> None:
    """Nothing else can be said of it."""
    parcel = FunctionParcel(name="f", source="def f(batch) return batch")
    with (
        BatchRunner(parcel, POLICY, "pandas", None) as runs,
        pytest.raises(BatchFailedError, match="SyntaxError"),
    ):
        runs(rows(1))


@pytest.mark.parametrize(
    ("number", "reason"), [(13, "exception"), (14, "exit"), (15, "memory"), (16, "time")]
)
def test_a_batch_that_fails_is_kept(odd: BatchRunner, number: int, reason: str) -> None:
    """It becomes one row, with the error and all of its rows; the next batch meets nothing that it left behind."""
    calls = odd(rows(1))["calls"].to_pylist()[0]
    fine = {"n": [1], "calls": [calls + 1], "error": [None], "error_batch": [None]}
    assert fine == odd(rows(1)).to_pydict()
    (row,) = odd(rows(number, 1)).to_pylist()
    assert row["error"].startswith(f"{reason}: "), row["error"]
    assert "earlier cells" not in row["error"]
    assert rows(number, 1).equals(pa.ipc.open_stream(row["error_batch"]).read_all())
    assert [1] == odd(rows(2))["calls"].to_pylist()


def test_without_a_column_for_it_an_error_is_raised() -> None:
    """With what a model would read of it."""
    with pytest.raises(
        BatchFailedError, match=r"(?s)`odd` failed on a batch of 2 rows.*ValueError: thirteen"
    ):
        run("odd", rows(13, 1))


@pytest.mark.parametrize(("limit", "most"), [("RENEWED_AFTER", 2), ("RENEWED_AFTER_BYTES", 16)])
def test_a_jail_is_made_anew_in_time(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    """Its record of batches ends with it, and what was put in, so nothing grows with the dataset."""
    monkeypatch.setattr(runner, limit, most)
    with BatchRunner(FunctionParcel(name="odd", source=SOURCE), POLICY, "pandas", None) as runs:
        assert [1, 2, 1, 2, 1] == [runs(rows(1))["calls"].to_pylist()[0] for _ in range(5)]


def test_a_shared_function_takes_along_what_it_uses() -> None:
    """Of the namespace that it comes from, also once that has ended; and arrives under any name."""
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
