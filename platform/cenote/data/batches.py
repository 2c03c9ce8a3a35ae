"""A function of a jail over a Ray Dataset: Ray moves the blocks, jails work on them where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cenote.data.parcel import FunctionParcel
from cenote.data.runner import FORMATS, BatchFormat, BatchRunner, error_columns
from cenote.runtime.references import ObjectReference
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    import pyarrow as pa
    from ray import ObjectRef
    from ray.data import Dataset


def map_batches(
    dataset: Dataset,
    function: ObjectReference | str,
    *,
    name: str | None = None,
    batch_format: BatchFormat = "pandas",
    batch_size: int | None = None,
    jails: int | tuple[int, int] | None = None,
    sandbox: SandboxPolicy | None = None,
    errors_to: str | None = None,
) -> Dataset:
    """The dataset that a function makes of another one, batch by batch, inside jails. Lazy, as Ray's own is.

    function: `runtime.share("clean")`, which takes along what the function uses of its namespace; or source text, of
        which `name` is meant. It takes a batch and returns one: a frame, an Arrow table, or a dictionary of columns.
    batch_format: what it is given: `pandas`, `pyarrow`, or `numpy`, a dictionary of arrays.
    batch_size: rows; by default whole blocks of the dataset.
    jails: how many, or the fewest and the most; by default as many as Ray finds room for. Each is in a process of
        Ray's, with `sandbox.cpus` of its processors, and serves many batches, one after the other: what the function
        leaves in its globals is there for the next one, until the jail is made anew: behind a failure, and in time.
    sandbox: of each jail; `cell_timeout` is a batch's. Snapshots and tracking are off.
    errors_to: None ends the job at the first batch that fails, with Ray's error, which has the text of
        BatchFailedError. Else a column of that name is added, which is null; a batch that fails, or kills its jail,
        becomes one row with the error there, and `failed_rows` gives its rows again.

    Values of Ray's tensor columns arrive as lists. Raises UsageError for what is none of these.
    """
    import ray
    from ray.data import ActorPoolStrategy

    policy = SandboxPolicy() if sandbox is None else sandbox
    if batch_format not in FORMATS:
        raise UsageError(f"batch_format is one of {', '.join(FORMATS)}, not {batch_format!r}")
    parcel = FunctionParcel.of(function, name)
    fewest, most = (jails if isinstance(jails, tuple) else (jails, jails)) if jails is not None else (1, None)
    return dataset.map_batches(
        _InRay,
        fn_constructor_args=(ray.put(parcel), policy, batch_format, errors_to),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ActorPoolStrategy(min_size=fewest, max_size=most),
        num_cpus=policy.cpus,
    )


class _InRay:
    """What Ray makes one of in each of its processes. All of them fetch the function from where it was put."""

    def __init__(
        self, parcel: ObjectRef[Any], policy: SandboxPolicy, form: BatchFormat, errors_to: str | None
    ) -> None:
        import ray

        self._runner = BatchRunner(ray.get(parcel), policy, form, errors_to)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return self._runner(batch)


def failed_rows(dataset: Dataset, errors_to: str) -> Dataset:
    """The rows of the batches on which `map_batches(..., errors_to=...)` failed, as they were, to be tried again."""

    def unpacked(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        _, kept = error_columns(errors_to)
        streams = table[kept].drop_null().to_pylist() if kept in table.column_names else []
        tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
        return pa.concat_tables(tables) if tables else pa.table({})

    return dataset.map_batches(unpacked, batch_format="pyarrow", batch_size=None)


def good_rows(dataset: Dataset, errors_to: str) -> Dataset:
    """What the function made of those that did not fail, without the columns for errors."""

    def kept(table: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        error, batch = error_columns(errors_to)
        if error not in table.column_names:
            return table
        return table.filter(pc.is_null(table[error])).drop_columns([error, batch])

    return dataset.map_batches(kept, batch_format="pyarrow", batch_size=None)
