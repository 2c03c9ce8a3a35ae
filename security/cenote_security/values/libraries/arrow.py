"""Arrow arrays, tables, schemas and data types: buffers as they are, then Arrow's full validation.

Buffers are sent one by one rather than as Arrow's IPC format: nothing is copied, and neither compressed bodies
nor extension types that load themselves exist in this form.

Data types are a closed grammar, without extension types, unions, views and run lengths. A parameterless type is its
name; others are a list that begins with the name. A field is `[name, type, nullable, metadata]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.libraries import optional
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Limits, Node, NodeParts, Write
from cenote_security.values.scalars import OFFSET, ZONE
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


_SIMPLE = (
    *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("halffloat", "float", "double", "date32[day]", "date64[ms]", "month_day_nano_interval"),
    *("string", "large_string", "binary", "large_binary"),
)
_FACTORIES = {"halffloat": "float16", "float": "float32", "double": "float64", "date32[day]": "date32",
              "date64[ms]": "date64"}  # fmt: skip
_UNITS = ("s", "ms", "us", "ns")
_MAX_NESTING = 16
MAX_FIELDS = 100_000
"""Columns of a table, fields of a structure, chunks of a column."""
_MAX_METADATA = 16 * 2**20
_MAX_WIDTH = 2**24


def type_meta(kind: Foreign, nesting: int = _MAX_NESTING) -> Json:
    """The description of a data type. Raises UnsafeValueError for one outside the grammar."""
    pa = optional.pyarrow()
    name, types = str(kind), pa.types
    if name in _SIMPLE and not isinstance(kind, pa.BaseExtensionType):
        return name
    if not nesting or isinstance(kind, pa.BaseExtensionType):
        raise UnsafeValueError("pyarrow.DataType", f"{name:.100}")
    if types.is_timestamp(kind):
        return ["timestamp", kind.unit, kind.tz]
    if types.is_time(kind):
        return ["time", kind.unit]
    if types.is_duration(kind):
        return ["duration", kind.unit]
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return ["decimal", kind.bit_width, kind.precision, kind.scale]
    if types.is_fixed_size_binary(kind) and kind.byte_width:
        return ["binary", kind.byte_width]
    return _nested_meta(kind, nesting - 1)


def _nested_meta(kind: Foreign, nesting: int) -> Json:
    pa = optional.pyarrow()
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return ["large_list" if types.is_large_list(kind) else "list", field_meta(kind.value_field, nesting)]
    if types.is_fixed_size_list(kind) and kind.list_size:
        return ["fixed_list", field_meta(kind.value_field, nesting), kind.list_size]
    if types.is_struct(kind) and kind.num_fields:
        return ["struct", [field_meta(kind.field(i), nesting) for i in range(kind.num_fields)]]
    if types.is_dictionary(kind):
        return ["dictionary", type_meta(kind.index_type), type_meta(kind.value_type, nesting), kind.ordered]
    raise UnsafeValueError("pyarrow.DataType", f"{kind!s:.100}")


def field_meta(field: Foreign, nesting: int = _MAX_NESTING) -> Json:
    return [field.name, type_meta(field.type, nesting), field.nullable, metadata_meta(field.metadata)]


def metadata_meta(metadata: dict[bytes, bytes] | None) -> Json:
    """Bytes as text, one character each."""
    if metadata is None:
        return None
    return [[key.decode("latin-1"), value.decode("latin-1")] for key, value in metadata.items()]


def schema_meta(schema: Foreign) -> Json:
    return [[field_meta(field) for field in schema], metadata_meta(schema.metadata)]


def read_type(meta: Json, nesting: int = _MAX_NESTING) -> Foreign:
    """The data type that was described."""
    pa = optional.pyarrow()
    if type(meta) is str:
        if meta not in _SIMPLE:
            expect.malformed("expected an Arrow type")
        return getattr(pa, _FACTORIES.get(meta, meta.replace("bool", "bool_")))()
    name, *arguments = expect.items(meta) or expect.malformed("expected an Arrow type")
    match name, arguments:
        case "timestamp", [unit, zone]:
            return pa.timestamp(expect.choice(unit, _UNITS), None if zone is None else _read_zone(zone))
        case "time", [unit]:
            chosen = expect.choice(unit, _UNITS)
            return pa.time32(chosen) if chosen in ("s", "ms") else pa.time64(chosen)
        case "duration", [unit]:
            return pa.duration(expect.choice(unit, _UNITS))
        case "decimal", [width, precision, scale]:
            make = pa.decimal128 if expect.integer(width, 128, 256) == 128 else pa.decimal256
            return make(expect.integer(precision, 1, 76), expect.integer(scale, -76, 76))
        case "binary", [width]:
            return pa.binary(expect.integer(width, 1, _MAX_WIDTH))
    return _read_nested(
        name, arguments, nesting - 1 if nesting else expect.malformed("a type nests too deeply")
    )


def _read_zone(meta: Json) -> str:
    name = expect.text(meta, 64)
    return (
        name if ZONE.fullmatch(name) or OFFSET.fullmatch(name) else expect.malformed("expected a time zone")
    )


def _read_nested(name: Json, arguments: list[Json], nesting: int) -> Foreign:
    pa = optional.pyarrow()
    match name, arguments:
        case "list", [field]:
            return pa.list_(read_field(field, nesting))
        case "large_list", [field]:
            return pa.large_list(read_field(field, nesting))
        case "fixed_list", [field, size]:
            return pa.list_(read_field(field, nesting), expect.integer(size, 1, _MAX_WIDTH))
        case "struct", [[_, *_] as fields] if len(fields) <= MAX_FIELDS:
            return pa.struct([read_field(field, nesting) for field in fields])
        case "dictionary", [index, value, ordered]:
            kind = read_type(value, nesting)
            return pa.dictionary(read_type(index, 0), kind, expect.flag(ordered))
    expect.malformed("expected an Arrow type")
    return None


def read_field(meta: Json, nesting: int = _MAX_NESTING) -> Foreign:
    pa = optional.pyarrow()
    name, kind, nullable, metadata = expect.items(meta, 4)
    return pa.field(
        expect.text(name, _MAX_METADATA),
        read_type(kind, nesting),
        expect.flag(nullable),
        read_metadata(metadata),
    )


def read_metadata(meta: Json) -> dict[bytes, bytes] | None:
    if meta is None:
        return None
    pairs = [expect.items(pair, 2) for pair in expect.items(meta)]
    return {_read_bytes(key): _read_bytes(value) for key, value in pairs}


def _read_bytes(value: Json) -> bytes:
    return expect.text(value, _MAX_METADATA).encode("latin-1")


def read_schema(meta: Json) -> Foreign:
    pa = optional.pyarrow()
    fields, metadata = expect.items(meta, 2)
    if len(expect.items(fields)) > MAX_FIELDS:
        expect.malformed(f"more than {MAX_FIELDS} columns")
    return pa.schema([read_field(field) for field in expect.items(fields)], read_metadata(metadata))


_WORD = 8  # buffers of numbers start on multiples of their size; Arrow computes on them without looking
_SPARE = 1024  # bytes: what an allocator rounds up by


def writers() -> dict[type, Write]:
    pa = optional.loaded("pyarrow", "Table")
    if pa is None:
        return {}
    return {
        pa.ChunkedArray: _write_chunked,
        pa.Table: _write_table,
        pa.RecordBatch: _write_batch,
        pa.Schema: _write_schema,
    }


def is_array(value: object) -> bool:
    """An array of any of Arrow's own types: each type has a class."""
    pa = optional.loaded("pyarrow", "Table")
    return pa is not None and issubclass(type(value), pa.Array) and type(value).__module__ == "pyarrow.lib"


def write_array(encoder: Encoder, value: Foreign) -> Node:
    return ["arrow", [type_meta(value.type), array_meta(encoder, value)]]


def array_meta(encoder: Encoder, array: Foreign) -> Json:
    """An array but for its type: `[length, [buffer, ...], [child, ...]]`; a buffer is `[offset, length]` or null."""
    pa = optional.pyarrow()
    if isinstance(array, pa.ExtensionArray):
        raise UnsafeValueError(class_name(type(array)), "an extension type")
    array = _compact(array)
    if pa.types.is_dictionary(array.type):
        return [len(array), [], [array_meta(encoder, array.indices), array_meta(encoder, array.dictionary)]]
    parts = children(array)
    own = array.buffers()[: _buffer_count(array.type)]
    buffers: Json = [None if b is None else encoder.buffer(memoryview(b).cast("B"), array) for b in own]
    return [len(array), buffers, [array_meta(encoder, child) for child in parts]]


def _compact(array: Foreign) -> Foreign:
    """A slice of a large array would otherwise bring all of it along; padding and spare room are not worth a copy.

    Children have to be of their parent's length, so an array that has any is cut to the last byte.
    """
    pa = optional.pyarrow()
    spare = array.get_total_buffer_size() - array.nbytes
    bearable = 0 if pa.types.is_nested(array.type) else max(_SPARE, array.nbytes // 16)
    return array if array.offset == 0 and spare <= bearable else pa.concat_arrays([array])


def children(array: Foreign) -> list[Foreign]:
    """The arrays that a nested array consists of."""
    pa = optional.pyarrow()
    kind, types = array.type, pa.types
    if types.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [array.values]
    return []


def _buffer_count(kind: Foreign) -> int:
    pa = optional.pyarrow()
    types = pa.types
    if types.is_null(kind) or types.is_struct(kind) or types.is_fixed_size_list(kind):
        return 1
    variable = types.is_string(kind) or types.is_large_string(kind)
    return 3 if variable or types.is_binary(kind) or types.is_large_binary(kind) else 2


def _build_array(parts: NodeParts) -> Foreign:
    kind, content = expect.items(parts.meta, 2)
    return read_array(read_type(kind), content, parts)


def read_array(kind: Foreign, meta: Json, parts: NodeParts) -> Foreign:
    """The array of this type that `array_meta` described, validated in full."""
    array = _read_array(kind, meta, parts)
    array.validate(full=True)
    return array


def _read_array(kind: Foreign, meta: Json, parts: NodeParts) -> Foreign:
    pa = optional.pyarrow()
    length, raw_buffers, children = expect.items(meta, 3)
    if pa.types.is_dictionary(kind):
        indices, dictionary = expect.items(children, 2)
        return pa.DictionaryArray.from_arrays(
            read_array(kind.index_type, indices, parts),
            read_array(kind.value_type, dictionary, parts),
            ordered=kind.ordered,
        )
    arrays = [
        read_array(child_kind, child, parts)
        for child_kind, child in zip(child_types(kind), expect.items(children), strict=True)
    ]
    buffers = [_read_buffer(raw, parts) for raw in expect.items(raw_buffers, _buffer_count(kind))]
    count = _read_length(kind, length, buffers, arrays, parts.source.limits)
    return pa.Array.from_buffers(kind, count, buffers, children=arrays)


def child_types(kind: Foreign) -> list[Foreign]:
    """Their types."""
    pa = optional.pyarrow()
    if pa.types.is_struct(kind):
        return [kind.field(i).type for i in range(kind.num_fields)]
    return [kind.value_type] if pa.types.is_nested(kind) else []


def _read_buffer(raw: Json, parts: NodeParts) -> Foreign:
    pa = optional.pyarrow()
    if raw is None:
        return None
    buffer = pa.py_buffer(parts.source.region.take(raw))
    if buffer.size and buffer.address % _WORD:
        expect.malformed("an Arrow buffer is not aligned")
    return buffer


def _read_length(
    kind: Foreign, raw: Json, buffers: list[Foreign], children: list[Foreign], limits: Limits
) -> int:
    """How many elements there are: no more than the buffers, or the children, can hold."""
    pa = optional.pyarrow()
    if pa.types.is_null(kind):
        return expect.integer(raw, 0, limits.empty_extent)
    length = expect.integer(raw, 0, 2**62)
    if pa.types.is_struct(kind):
        exact = all(len(child) == length for child in children)
        exact &= bool(children) or length <= limits.empty_extent
    elif pa.types.is_fixed_size_list(kind):
        exact = len(children[0]) == length * kind.list_size
    else:
        exact = length <= 8 * sum(b.size for b in buffers[1:] if b is not None)
    if not exact:
        expect.malformed("an Arrow array is longer than its buffers")
    return length


def _write_chunked(encoder: Encoder, value: Foreign) -> Node:
    return ["chunked", type_meta(value.type), encoder.run(list(value.chunks))]


def _build_chunked(parts: NodeParts) -> Foreign:
    pa = optional.pyarrow()
    return pa.chunked_array(_arrow(parts, pa.Array), type=read_type(parts.meta))


def _arrow(parts: NodeParts, cls: type) -> list[Foreign]:
    children = expect.distinct(parts.runs[0], MAX_FIELDS)
    if not all(isinstance(child, cls) for child in children):
        expect.malformed(f"expected {cls.__name__}")
    return children


def _write_table(encoder: Encoder, value: Foreign) -> Node:
    return ["table", schema_meta(value.schema), encoder.run(list(value.columns))]


def _build_table(parts: NodeParts) -> Foreign:
    pa = optional.pyarrow()
    table = pa.Table.from_arrays(_arrow(parts, pa.ChunkedArray), schema=read_schema(parts.meta))
    table.validate()  # each column was validated in full; this checks that they fit together
    return table


def _write_batch(encoder: Encoder, value: Foreign) -> Node:
    return ["batch", schema_meta(value.schema), encoder.run(list(value.columns))]


def _build_batch(parts: NodeParts) -> Foreign:
    pa = optional.pyarrow()
    batch = pa.RecordBatch.from_arrays(_arrow(parts, pa.Array), schema=read_schema(parts.meta))
    batch.validate()
    return batch


def _write_schema(_encoder: Encoder, value: Foreign) -> Node:
    return ["schema", schema_meta(value)]


def _build_schema(parts: NodeParts) -> Foreign:
    return read_schema(parts.meta)


KINDS: dict[str, Kind] = {
    "arrow": Immutable(build=_build_array, runs=0),
    "chunked": Immutable(build=_build_chunked, whole=True),
    "table": Immutable(build=_build_table, whole=True),
    "batch": Immutable(build=_build_batch, whole=True),
    "schema": Immutable(build=_build_schema, runs=0),
}
