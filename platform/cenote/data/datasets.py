"""Ray Datasets for the code of an agent: it looks at a few rows, and sends functions to where the others are."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from cenote.data.batches import failed_rows, good_rows, map_batches
from cenote.data.runner import error_columns
from cenote.runtime.inject.references import ObjectReference, Sealed
from cenote_security.errors import UsageError
from cenote_security.options import Size, parse_size
from cenote_security.policy import SandboxPolicy
from cenote_worker.jail.errors.nearest import nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset

ERROR: Final = "error"
"""The column that errors go to while results and failures are still one dataset."""

MOST_ERRORS: Final = 5
MOST_ERROR_TEXT: Final = 2_000
MOST_ROWS: Final = 1_000


class MapReport(TypedDict):
    """What became of a `map`. failed_rows: how many the function failed on, in `failed_batches` batches or parts of
    them, down to single rows. errors: the first different ones.
    """

    rows: int
    columns: dict[str, str]
    failed_rows: int
    failed_batches: int
    errors: list[str]


class Datasets:
    """Datasets by name. Inject it as `Variable("datasets", Datasets({"sales": sales}), host=True)`.

    Code in the jail calls `datasets.head("sales")`, writes and tries a function there, hands it over with
    `datasets.put("clean", clean)`, has it run over all rows with `datasets.map("sales", "clean", into="tidy")`, and
    takes a small result in with `datasets.load("totals")`. Rows go from jail to jail and through no model.
    """

    def __init__(
        self,
        datasets: Mapping[str, Dataset],
        *,
        sandbox: SandboxPolicy | None = None,
        jails: int | tuple[int, int] | None = None,
        load_limit: Size = "64MiB",
    ) -> None:
        """sandbox, jails: of those that functions run in; see map_batches. load_limit: the most that `load` gives."""
        self._datasets = dict(datasets)
        self._functions: dict[str, ObjectReference] = {}
        self._sandbox = sandbox
        self._jails = jails
        self._load_limit = parse_size(load_limit)
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Dataset:
        """For the program that made this: a dataset, such as one that `map` has made. Raises UsageError."""
        return self._dataset(name)

    def names(self) -> list[str]:
        """The names of all datasets"""
        with self._lock:
            return sorted(self._datasets)

    def schema(self, name: str) -> dict[str, str]:
        """Columns of a dataset and their types"""
        return _columns(self._dataset(name))

    def count(self, name: str) -> int:
        """Rows of a dataset"""
        return int(self._dataset(name).count())

    def head(self, name: str, rows: int = 5) -> Any:
        """The first rows of a dataset (a thousand at most), as a DataFrame"""
        if not 0 < rows <= MOST_ROWS:
            raise UsageError(f"head gives 1 to {MOST_ROWS} rows, not {rows}; map and load are for more")
        return self._dataset(name).limit(rows).to_pandas()

    def put(self, name: str, value: Sealed) -> None:
        """Hands over a function, for `map`: it takes a DataFrame of some of the rows and returns one"""
        if not isinstance(value, Sealed):  # the jail called past its stub
            raise UsageError("put takes a name and a function")
        with self._lock:
            former = self._functions.get(name)
            self._functions[name] = value.reference
        if former is not None:
            former.release()

    def map(self, dataset: str, function: str, into: str, batch_size: int | None = None) -> MapReport:
        """Applies a function that was `put` to all rows, a batch at a time, and names the resulting dataset `into`

        Rows on which it fails are left out; they are the dataset `<into>.failed`. To find them, parts of a batch
        that fails are tried: the function sees those, too.
        """
        with self._lock:
            reference = self._functions.get(function)
            known = list(self._functions)
        if reference is None:
            raise UsageError(f"no function {function!r} was put{_hint(function, known)}")
        mapped = map_batches(
            self._dataset(dataset),
            reference,
            name=function,
            batch_size=batch_size,
            jails=self._jails,
            sandbox=self._sandbox,
            errors_to=ERROR,
        ).materialize()
        errors = _errors(mapped)
        made, failed = {into: good_rows(mapped, ERROR)}, 0
        if errors:
            made[f"{into}.failed"] = failed_rows(mapped, ERROR).materialize()
            failed = made[f"{into}.failed"].count()
        with self._lock:
            self._datasets.pop(f"{into}.failed", None)
            self._datasets.update(made)
        return {
            "rows": mapped.count() - len(errors),  # of which each is a row
            "columns": {
                name: kind for name, kind in _columns(mapped).items() if name not in error_columns(ERROR)
            },
            "failed_rows": failed,
            "failed_batches": len(errors),
            "errors": list(dict.fromkeys(errors))[:MOST_ERRORS],
        }

    def load(self, name: str) -> Any:
        """All rows of a small dataset, as a DataFrame"""
        import pyarrow as pa

        tables, size = list[pa.Table](), 0
        for table in _blocks(self._dataset(name)):
            tables.append(table)
            size += table.nbytes
            if size > self._load_limit:
                raise UsageError(
                    f"{name!r} has more than the {self._load_limit} bytes that may be loaded; "
                    "make it smaller with map"
                )
        return pa.concat_tables(tables, promote_options="default").to_pandas() if tables else _no_rows()

    def drop(self, name: str) -> None:
        """Forgets a dataset"""
        self._dataset(name)
        with self._lock:
            self._datasets.pop(name, None)

    def _dataset(self, name: str) -> Dataset:
        with self._lock:
            dataset = self._datasets.get(name)
            known = list(self._datasets)
        if dataset is None:
            raise UsageError(f"no dataset {name!r}{_hint(name, known)}")
        return dataset


def _hint(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    if near:
        return f"; the nearest names are {', '.join(near)}"
    return f"; there are {', '.join(sorted(known)) or 'none'}"


def _no_rows() -> Any:
    import pandas as pd

    return pd.DataFrame()


def _columns(dataset: Dataset) -> dict[str, str]:
    schema = dataset.schema()
    if schema is None:
        return {}
    return {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)}


def _blocks(dataset: Dataset) -> Iterable[pa.Table]:
    """One after the other, never all at once."""
    blocks: Iterable[pa.Table] = dataset.iter_batches(batch_format="pyarrow", batch_size=None)
    return blocks


def _errors(mapped: Dataset) -> list[str]:
    """Of each part of a batch that failed, bounded."""
    columns = _columns(mapped)
    if ERROR not in columns:
        return []
    texts: list[str] = []
    for table in _blocks(mapped.select_columns([ERROR])):
        texts += [text[-MOST_ERROR_TEXT:] for text in table[ERROR].drop_null().to_pylist()]
    return texts
