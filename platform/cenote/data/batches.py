"""A function of a jail over a Ray Dataset: Ray moves the blocks, jails work on them where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cenote.data.runner import FORMATS, BatchFormat, BatchRunner, FunctionParcel, error_columns
from cenote.data.schemas import AgreedSchema, SchemaAgreement
from cenote.runtime.inject.references import ObjectReference
from cenote_security.errors import UsageError
from cenote_security.extras import importing
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    import pyarrow as pa
    from ray import ObjectRef
    from ray.actor import ActorHandle
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
    schema: pa.Schema | None = None,
) -> Dataset:
    """The dataset that a function makes of another one, batch by batch, inside jails. Lazy, as Ray's own is.

    function: `runtime.share("clean")`, which takes along what the function uses of its namespace; or source text, of
        which `name` is meant. It takes a batch and returns one: a frame, an Arrow table, or a dictionary of columns.
    batch_format: what it is given: `pandas`, `pyarrow`, or `numpy`, a dictionary of arrays.
    batch_size: rows; by default whole blocks of the dataset, which Ray makes as large as 128 MiB.
    jails: how many, or the fewest and the most; by default as many as Ray finds room for. Each is in a process of
        Ray's, with as many of its processors as `sandbox` allows, and serves many batches, one after the other: what
        the function leaves in its globals is there for the next one, until the jail is made anew: after a failure,
        and in time.
    sandbox: of each jail; `cell_timeout` is a batch's. Snapshots and tracking are off.
    errors_to: None ends the job at the first batch that fails, with Ray's error, which has the text of
        BatchFailedError. Else all blocks have one schema, with a column of that name: it is null beside values. A
        batch that fails, or kills its jail, is split until the rows that it fails on stand alone, as far as
        `splitting.BUDGET` goes: each of these is a row with the error, whose values are null, and `failed_rows` gives
        its rows again. So the function sees parts of batches.
    schema: with `errors_to`: what results have; by default what the first of them has.

    Values of Ray's tensor columns arrive as lists. Raises UsageError for what is none of these.
    """
    with importing("what works through Ray's datasets", "platform,data"):
        import ray
        from ray.data import ActorPoolStrategy

    policy = SandboxPolicy() if sandbox is None else sandbox
    if batch_format not in FORMATS:
        raise UsageError(f"batch_format is one of {', '.join(FORMATS)}, not {batch_format!r}")
    if schema is not None and errors_to is None:
        raise UsageError(
            "`schema` goes with `errors_to`; without it results are as the function returns them"
        )
    if schema is not None and set(error_columns(errors_to)) & set(schema.names):
        raise UsageError(
            f"`schema` has a column {errors_to!r}, which errors go to; choose another name for it"
        )
    parcel = FunctionParcel.of(function, name)
    fewest, most = (jails if isinstance(jails, tuple) else (jails, jails)) if jails is not None else (1, None)
    return dataset.map_batches(
        _InRay,
        fn_constructor_args=(ray.put(parcel), policy, batch_format, errors_to, _agreement(errors_to, schema)),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ActorPoolStrategy(min_size=fewest, max_size=most),
        num_cpus=policy.millicpus / 1000,
    )


def _agreement(errors_to: str | None, schema: pa.Schema | None) -> ActorHandle[Any] | AgreedSchema | None:
    """What all processes know of the schema of results, or where they find that out."""
    import ray

    if errors_to is None:
        return None
    if schema is not None:
        return AgreedSchema(schema=schema.remove_metadata())
    actor: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(SchemaAgreement)
    handle: ActorHandle[Any] = actor.remote()
    return handle


class _InRay:
    """What Ray makes one of in each of its processes. All of them fetch the function from where it was put."""

    def __init__(
        self,
        parcel: ObjectRef[Any],
        policy: SandboxPolicy,
        form: BatchFormat,
        errors_to: str | None,
        agreement: ActorHandle[Any] | AgreedSchema | None,
    ) -> None:
        import ray

        def agree(proposed: AgreedSchema | None) -> AgreedSchema | None:
            if agreement is None or isinstance(agreement, AgreedSchema):
                return agreement
            answer: Any = agreement.agree.remote(proposed)
            agreed: AgreedSchema | None = cast("Any", ray.get(answer))
            return agreed

        self._runner = BatchRunner(ray.get(parcel), policy, form, errors_to, agree)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return self._runner(batch)


def failed_rows(dataset: Dataset, errors_to: str) -> Dataset:
    """The rows on which `map_batches(..., errors_to=...)` failed, as they were, to be tried again."""

    def unpacked(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        _, kept = error_columns(errors_to)
        streams = table[kept].drop_null().to_pylist() if kept in table.column_names else []
        tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

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
