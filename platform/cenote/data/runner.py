"""One jail in a process of Ray's, through which batches go. The process itself opens nothing that comes out.

The function arrives as its source, or as a pickle that only a jail opens. Of a batch that fails, parts are tried,
and parts of parts, until bad rows stand alone or the budget is spent.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from cenote.data.errors import BatchFailedError
from cenote.data.schemas import Agree, AgreedSchema, SchemaAgreement, conformed, proposal, stand_ins
from cenote.runtime.faces.sync import PythonRuntime
from cenote.runtime.inject.injectables import Variable, check_name
from cenote.runtime.inject.references import ObjectReference
from cenote_security.errors import (
    JailError,
    MalformedValueError,
    UnknownNameError,
    UnsafeValueError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.transport.content import Content

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionParcel:
    """name: what it is called where it arrives. Either `source` defines it, or `parts` are what was shared of it."""

    name: str
    source: str = ""
    parts: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, function: ObjectReference | str, name: str | None) -> Self:
        """Raises UsageError for what is neither, and for source without a name in it that could be meant."""
        if isinstance(function, ObjectReference):
            shared = function.content()
            try:
                parts = tuple(bytes(part) for part in shared.unpack())
            finally:
                shared.close()
            return cls(name=_checked(name or function.info.name), parts=parts)
        if not isinstance(function, str):
            raise UsageError(
                "the function is what `runtime.share(name)` gives, or source text; a function of this process would "
                f"run here, outside any jail ({type(function).__name__} was given)"
            )
        if name is None:
            raise UsageError("`name` says which of the names that the source defines is the function")
        return cls(name=_checked(name), source=function)

    def reference(self) -> ObjectReference:
        """What was shared, for a runtime of this process. Raises OSError when there is no memory for it."""
        return ObjectReference.of_sealed(Content.pack(self.parts), None)


def _checked(name: str) -> str:
    check_name(name, "function")
    return name


BUDGET: Final = 500
"""Failing calls, in all, that one process makes to find bad rows. Each costs a new jail, some 20 to 100 ms."""

EACH: Final = 50
"""Failing calls that it may make beyond those for each batch that fails: enough for some bad rows in a million."""

PARTS: Final = 8
"""Of one that failed. A failing call costs as much as ten others, and halves take twice as many as eighths."""

PROBES: Final = 5
"""Rows of a batch that are tried alone, one after the other until one is good: where bad rows are many, each large
part has some.
"""

HOPELESS: Final = 24
"""Failing calls without anything good, after which a batch is taken for one that has nothing."""

HOPELESS_AGAIN: Final = 3
"""The same after a batch that had nothing: a function that cannot work at all costs little more than its calls."""

_COST: Final = {"time": 50, "memory": 5}
"""Of failing calls that take longer than a new jail, by their reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart:
    """Rows of a batch, and what came of them."""

    start: int
    rows: int
    came_to: pa.Table | BatchFailedError


Attempt = Callable[[int, int], "pa.Table | BatchFailedError"]
"""Tries the rows from here on, so many."""


class Splitting:
    """Of one process: what it may still spend on bad rows."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._left = budget
        self._patience = HOPELESS
        self._tries = 0
        """Failing calls for this batch."""

    def parts(self, rows: int, failure: BatchFailedError, attempt: Attempt) -> list[BatchPart]:
        """The parts of a batch that failed as a whole, in their order; each that failed is as small as was found."""
        self._left += EACH - _cost(failure)
        self._tries = 0
        found = self._has_good_rows(rows, attempt)
        done, waiting = list[BatchPart](), [(-rows, 0, failure)]
        while waiting:
            size, start, known = heapq.heappop(waiting)
            size = -size
            if size <= 1 or self._left <= 0 or (not found and self._tries >= self._patience):
                done.append(BatchPart(start=start, rows=size, came_to=known))
                continue
            for first, several in _cut(start, size):
                came_to = self._attempted(attempt, first, several)
                if isinstance(came_to, BatchFailedError):
                    heapq.heappush(waiting, (-several, first, came_to))
                else:
                    found = True
                    done.append(BatchPart(start=first, rows=several, came_to=came_to))
        self._patience = HOPELESS if found else HOPELESS_AGAIN
        self._left = max(self._left, 0)
        return sorted(done, key=lambda part: part.start)

    def _has_good_rows(self, rows: int, attempt: Attempt) -> bool:
        """Of some rows, alone. A function may need several at once: that none is good says little."""
        several = min(PROBES, self._patience) if rows > PROBES else 0
        # In different steps, since bad rows may come in equal ones.
        places = [rows * each // several + each for each in range(several)]
        return any(
            not isinstance(self._attempted(attempt, place, 1), BatchFailedError)
            for place in places
            if self._left > 0
        )

    def _attempted(self, attempt: Attempt, start: int, rows: int) -> pa.Table | BatchFailedError:
        came_to = attempt(start, rows)
        if isinstance(came_to, BatchFailedError):
            self._tries += 1
            self._left -= _cost(came_to)
        return came_to


def _cut(start: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts that come next: where they begin, and how many rows they have."""
    parts = min(PARTS, size)
    ends = [start + size * each // parts for each in range(parts + 1)]
    return ((first, end - first) for first, end in pairwise(ends))


def _cost(failure: BatchFailedError) -> int:
    return _COST.get(failure.reason, 1)


BatchFormat = Literal["pandas", "pyarrow", "numpy"]

FORMATS: Final = ("pandas", "pyarrow", "numpy")

RENEWED_AFTER: Final = 500
"""Batches. A jail's record grows with each; making another takes 10 ms."""

RENEWED_AFTER_BYTES: Final = 128 * 2**20
"""Of batches: a runtime holds what was put into it for a while, to be able to put it in again."""

GIVEN: Final = "cenote_given"
RESULT: Final = "cenote_result"


class BatchRunner:
    """Applies a function to Arrow tables, one at a time, each inside a jail that serves many of them.

    Use it in a `with` block, or call `close`; what is forgotten ends with its process.
    """

    def __init__(
        self,
        function: FunctionParcel,
        policy: SandboxPolicy,
        form: BatchFormat,
        errors_to: str | None,
        agree: Agree | None = None,
    ) -> None:
        """function: as it arrives in the jail. errors_to: see map_batches. agree: by default alone."""
        self._function = function
        # No caller goes back to a state here, or asks what a batch has read.
        self._policy = replace(policy, snapshots="none", tracking=False)
        self._form = form
        self._errors_to = errors_to
        self._agree = agree or SchemaAgreement().agree
        self._agreed: AgreedSchema | None = None
        self._splitting = Splitting()
        self._runtime: PythonRuntime | None = None
        self._served = self._bytes = 0

    def __enter__(self) -> BatchRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """What the function makes of the batch. Raises BatchFailedError, unless errors have a column."""
        if self._errors_to is None:
            return self._raised(batch)
        whole = self._attempt(batch)
        if isinstance(whole, BatchFailedError):
            return self._in_parts(batch, whole, self._errors_to)
        return with_errors(whole, self._errors_to)

    def _raised(self, batch: pa.Table) -> pa.Table:
        try:
            return self._apply(batch)
        except BatchFailedError:
            self.close()  # its state must not reach the next batch
            raise

    def _attempt(self, batch: pa.Table) -> pa.Table | BatchFailedError:
        """What the function makes of these rows, in the schema of all results."""
        try:
            table = self._apply(batch)
            if self._agreed is None and table.num_rows:
                self._agreed = self._agree(proposal(table, batch.schema))
            return table if self._agreed is None else conformed(table, self._agreed, self._function.name)
        except BatchFailedError as failure:
            self.close()  # see above
            return failure

    def _in_parts(self, batch: pa.Table, failure: BatchFailedError, errors_to: str) -> pa.Table:
        """The results of what does not fail, and the rest beside its errors."""
        import pyarrow as pa

        parts = self._splitting.parts(
            batch.num_rows, failure, lambda start, rows: self._attempt(batch.slice(start, rows))
        )
        schema = self._known(batch).schema
        tables = [
            failed_part(batch.slice(part.start, part.rows), part.came_to, schema, errors_to)
            if isinstance(part.came_to, BatchFailedError)
            else with_errors(part.came_to, errors_to)
            for part in parts
            if isinstance(part.came_to, BatchFailedError) or part.came_to.num_rows
        ]
        return pa.concat_tables(tables) if tables else with_errors(schema.empty_table(), errors_to)

    def _known(self, batch: pa.Table) -> AgreedSchema:
        """The schema of all results, also where the function has worked on none of this batch's rows."""
        self._agreed = self._agreed or self._agree(None)
        if self._agreed is None:
            guess = proposal(self._likely(batch.schema), batch.schema, open=True)
            self._agreed = self._agree(guess) or guess
        return self._agreed

    def _likely(self, given: pa.Schema) -> pa.Table:
        """What the function makes of rows like those of its batches, which no one else may see."""
        import pyarrow as pa

        policy = self._policy
        alone = policy.network == "none" and not any(mount.writable for mount in policy.mounts)
        for rows in stand_ins(given):
            if alone or not rows.num_rows:
                try:
                    return self._apply(rows)
                except BatchFailedError:
                    self.close()
        return pa.table({})

    def _apply(self, batch: pa.Table) -> pa.Table:
        runtime = self._ready(batch)
        try:
            runtime.update_variable(GIVEN, as_stream(batch))
            name = self._function.name
            # The result before it is let go of first. One line, since a traceback that a model reads shows it.
            call = f"{RESULT} = cenote_table({name}(cenote_batch({GIVEN}, {self._form!r})), {name!r})"
            result = runtime.execute(f"{RESULT} = None\n{call}")
            if result.error is not None:
                raise self._failure(batch.num_rows, result.error)
            table = runtime.retrieve(RESULT)
        except (JailError, UnsafeValueError, MalformedValueError, UnknownNameError) as error:
            raise BatchFailedError(self._function.name, batch.num_rows, str(error), "result") from error
        return self._checked(table, batch.num_rows)

    def _checked(self, table: Any, rows: int) -> pa.Table:
        """What the jail calls a table may be anything, and may have a column that is ours."""
        import pyarrow as pa

        if not isinstance(table, pa.Table):
            text = f"what came back is {type(table).__name__}, not a table"
            raise BatchFailedError(self._function.name, rows, text, "result")
        for name in error_columns(self._errors_to):
            if name in table.column_names:
                text = f"the result has a column {name!r}, which errors go to; choose another name for `errors_to`"
                raise BatchFailedError(self._function.name, rows, text, "result")
        return table

    def _ready(self, batch: pa.Table) -> PythonRuntime:
        if self._served >= RENEWED_AFTER or self._bytes >= RENEWED_AFTER_BYTES:
            self.close()
        if self._runtime is None:
            self._runtime, self._served, self._bytes = self._begun(batch.num_rows), 0, 0
        self._served += 1
        self._bytes += batch.nbytes
        return self._runtime

    def _begun(self, rows: int) -> PythonRuntime:
        shared = self._function.reference() if self._function.parts else None
        held = [Variable(self._function.name, shared)] if shared is not None else []
        runtime = PythonRuntime(sandbox=self._policy, address="embedded", variables=[*held, Variable(GIVEN)])
        try:
            for code in (Path(__file__).with_name("in_jail.py").read_text(), self._function.source):
                result = runtime.execute(code)
                if result.error is not None:
                    raise self._failure(rows, result.error)
        except BaseException:
            runtime.close()
            raise
        finally:
            if shared is not None:
                shared.release()
        return runtime

    def _failure(self, rows: int, error: ErrorInfo) -> BatchFailedError:
        # After the semicolon, the message of a lost jail says what became of the namespace: no user has one here.
        text = str(error) if error.traceback else error.message.partition(";")[0]
        return BatchFailedError(self._function.name, rows, text, error.reason)


def error_columns(errors_to: str | None) -> tuple[str, ...]:
    return () if errors_to is None else (errors_to, f"{errors_to}_batch")


def as_stream(batch: pa.Table) -> Any:
    """An Arrow stream, as an array of bytes. A pickle of a part of a table would have all of it."""
    import numpy as np
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_table(batch)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def failed_part(part: pa.Table, failure: BatchFailedError, schema: pa.Schema, errors_to: str) -> pa.Table:
    """One row, with the error and with all rows of the part, so that nothing of it is lost. schema: of results."""
    import pyarrow as pa

    error, kept = error_columns(errors_to)
    columns = {each.name: pa.nulls(1, each.type) for each in schema}
    columns[error] = pa.array([f"{failure.reason}: {failure.error}"], pa.string())
    columns[kept] = pa.array([as_stream(part).tobytes()], pa.large_binary())
    return pa.table(columns)


def with_errors(table: pa.Table, errors_to: str) -> pa.Table:
    """The same with empty columns for errors."""
    import pyarrow as pa

    error, kept = error_columns(errors_to)
    table = table.append_column(error, pa.nulls(table.num_rows, pa.string()))
    return table.append_column(kept, pa.nulls(table.num_rows, pa.large_binary()))
