"""Data types of Arrow as data: a closed grammar, without extension types, unions, views and run lengths.

A parameterless type is its name; others are a list that begins with the name. A field is
`[name, type, nullable, metadata]`.
"""

from __future__ import annotations

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect, libraries
from cenote_security.values.node import Foreign, Json
from cenote_security.values.times import OFFSET, ZONE

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
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
    fields, metadata = expect.items(meta, 2)
    if len(expect.items(fields)) > MAX_FIELDS:
        expect.malformed(f"more than {MAX_FIELDS} columns")
    return pa.schema([read_field(field) for field in expect.items(fields)], read_metadata(metadata))
