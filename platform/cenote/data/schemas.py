"""The one schema that all blocks of a result have, with its columns for errors.

The first result decides it, in whatever process. What no result has said yet is a guess: the types of columns that
are empty there, and all of it while batches have failed as a whole. What contradicts a guess ends the job, since
blocks with that are written already; what contradicts a result is a failure of its rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cenote.data.errors import BatchFailedError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedSchema:
    """schema: of results. guessed: columns whose types are guesses. open: so is which columns there are."""

    schema: pa.Schema
    guessed: frozenset[str] = field(default=frozenset())
    open: bool = False


Agree = Callable[[AgreedSchema | None], AgreedSchema | None]
"""Proposes a schema, unless it is None. Gives the one that holds: the first that was proposed."""


class SchemaAgreement:
    """What was agreed on: in one process, or in an actor of Ray's for many."""

    def __init__(self) -> None:
        self._agreed: AgreedSchema | None = None
        self._lock = threading.Lock()

    def agree(self, proposed: AgreedSchema | None) -> AgreedSchema | None:
        """See Agree."""
        with self._lock:
            self._agreed = self._agreed or proposed
            return self._agreed


def proposal(table: pa.Table, given: pa.Schema, *, open: bool = False) -> AgreedSchema:
    """What a result says of all others. given: of the batch, whose types stand for those that the result lacks."""
    import pyarrow as pa

    fields, guessed = list[pa.Field](), set[str]()
    for each in table.schema:
        kind = each.type
        if (
            table[each.name].null_count == table.num_rows
        ):  # pandas calls a column floats that has nothing in it
            guessed.add(each.name)
        if _lacks_type(kind):
            position = given.get_field_index(each.name)
            same = given.field(position).type if pa.types.is_null(kind) and position >= 0 else kind
            kind = _completed(same)
            guessed.add(each.name)
        elif pa.types.is_dictionary(kind):  # the width of its numbers is a matter of each batch
            kind = pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
        fields.append(pa.field(each.name, kind))
    return AgreedSchema(schema=pa.schema(fields), guessed=frozenset(guessed), open=open)


def conformed(table: pa.Table, agreed: AgreedSchema, function: str) -> pa.Table:
    """The same in the schema that was agreed on. A column that is missing is null.

    Raises BatchFailedError where that would change a value, and SchemaMismatchError if all blocks until then may be
    wrong.
    """
    import pyarrow as pa

    if not table.num_rows:
        return agreed.schema.empty_table()
    if further := [name for name in table.column_names if name not in agreed.schema.names]:
        _refuse(
            function, table, f"a column {further[0]!r}, which other results do not have", guess=agreed.open
        )
    columns = []
    for each in agreed.schema:
        if each.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, each.type))
            continue
        column = table[each.name]
        try:
            columns.append(column if column.type == each.type else _cast(column, each.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            text = f"a column {each.name!r} of {column.type}, which is {each.type} in other results ({error})"
            _refuse(function, table, text, guess=agreed.open or each.name in agreed.guessed)
    return pa.table(columns, schema=agreed.schema)


def stand_ins(given: pa.Schema) -> Iterator[pa.Table]:
    """Rows like those of a batch, each alone, and none of them. A function that works on one says what it returns."""
    import pyarrow as pa

    for number, text in ((1, "1"), (100, "a"), (7, "2020-01-01")):
        columns = []
        for each in given:
            value = text if _is_like(each.type, pa.string()) else number
            try:
                columns.append(
                    pa.array([value], pa.string() if value is text else pa.int64()).cast(each.type)
                )
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                columns.append(pa.nulls(1, each.type))
        yield pa.table(columns, schema=given)
    yield given.empty_table()


def _refuse(function: str, table: pa.Table, text: str, *, guess: bool) -> None:
    if guess:
        raise SchemaMismatchError(function, text)
    raise BatchFailedError(
        function, table.num_rows, f"the result has {text}; `schema=` says what results have", "schema"
    )


def _lacks_type(kind: pa.DataType) -> bool:
    """Whether nothing in the column says what type it has, or a part of it."""
    import pyarrow as pa

    inner = [kind.field(position).type for position in range(kind.num_fields)]
    return bool(pa.types.is_null(kind)) or any(map(_lacks_type, inner))


def _completed(kind: pa.DataType) -> pa.DataType:
    """With text where nothing says what it is."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_list(kind):
        return pa.large_list(_completed(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(_completed(kind.value_type))
    if pa.types.is_struct(kind):
        inner = [kind.field(position) for position in range(kind.num_fields)]
        return pa.struct([each.with_type(_completed(each.type)) for each in inner])
    return kind


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same values in another type of their kind. Raises the errors of Arrow."""
    import pyarrow as pa

    if not _is_like(column.type, kind):
        raise pa.ArrowTypeError("no value becomes one of another kind")
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(kind):
        column = column.cast(column.type.value_type)
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        column = column.cast(kind.value_type).dictionary_encode()
    return column.cast(kind, safe=True)


def _is_like(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of the first may be values of the other, or a cast finds out which are not."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind):
        return True
    if types.is_dictionary(kind) or types.is_dictionary(other):
        return _is_like(*(each.value_type if types.is_dictionary(each) else each for each in (kind, other)))
    if types.is_floating(kind) and types.is_floating(other):
        return bool(kind.bit_width <= other.bit_width)  # a cast to fewer bits does not say what it loses
    if types.is_timestamp(kind) and types.is_timestamp(other):
        return bool(kind.tz == other.tz)
    return any(is_one(kind) and is_one(other) for is_one in _kinds())


def _kinds() -> tuple[Callable[[pa.DataType], bool], ...]:
    import pyarrow as pa

    types = pa.types
    return (
        lambda kind: types.is_integer(kind) or types.is_floating(kind),
        lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind),
        lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind),
        types.is_boolean,
        types.is_date,
        types.is_time,
        types.is_duration,
        types.is_decimal,
        lambda kind: types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind),
        types.is_struct,
        types.is_map,
    )
