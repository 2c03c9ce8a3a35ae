"""Arrow arrays, tables and schemas: their buffers as they are, then Arrow's full validation.

Buffers are sent one by one rather than as Arrow's IPC format: nothing is copied, and neither compressed bodies
nor extension types that load themselves exist in this form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect, libraries
from cenote_security.values.arrow_types import MAX_FIELDS, read_schema, read_type, schema_meta, type_meta
from cenote_security.values.limits import Limits
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, Parts, Write
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_WORD = 8  # buffers of numbers start on multiples of their size; Arrow computes on them without looking
_SPARE = 1024  # bytes: what an allocator rounds up by


def writers() -> dict[type, Write]:
    pa = libraries.loaded("pyarrow", "Table")
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
    pa = libraries.loaded("pyarrow", "Table")
    return pa is not None and issubclass(type(value), pa.Array) and type(value).__module__ == "pyarrow.lib"


def write_array(encoder: Encoder, value: Foreign) -> Node:
    return ["arrow", [type_meta(value.type), array_meta(encoder, value)]]


def array_meta(encoder: Encoder, array: Foreign) -> Json:
    """An array but for its type: `[length, [buffer, ...], [child, ...]]`; a buffer is `[offset, length]` or null."""
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
    spare = array.get_total_buffer_size() - array.nbytes
    bearable = 0 if pa.types.is_nested(array.type) else max(_SPARE, array.nbytes // 16)
    return array if array.offset == 0 and spare <= bearable else pa.concat_arrays([array])


def children(array: Foreign) -> list[Foreign]:
    """The arrays that a nested array consists of."""
    pa = libraries.pyarrow()
    kind, types = array.type, pa.types
    if types.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [array.values]
    return []


def _buffer_count(kind: Foreign) -> int:
    pa = libraries.pyarrow()
    types = pa.types
    if types.is_null(kind) or types.is_struct(kind) or types.is_fixed_size_list(kind):
        return 1
    variable = types.is_string(kind) or types.is_large_string(kind)
    return 3 if variable or types.is_binary(kind) or types.is_large_binary(kind) else 2


def _build_array(parts: Parts) -> Foreign:
    kind, content = expect.items(parts.meta, 2)
    return read_array(read_type(kind), content, parts)


def read_array(kind: Foreign, meta: Json, parts: Parts) -> Foreign:
    """The array of this type that `array_meta` described, validated in full."""
    array = _read_array(kind, meta, parts)
    array.validate(full=True)
    return array


def _read_array(kind: Foreign, meta: Json, parts: Parts) -> Foreign:
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
    if pa.types.is_struct(kind):
        return [kind.field(i).type for i in range(kind.num_fields)]
    return [kind.value_type] if pa.types.is_nested(kind) else []


def _read_buffer(raw: Json, parts: Parts) -> Foreign:
    pa = libraries.pyarrow()
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
    pa = libraries.pyarrow()
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


def _build_chunked(parts: Parts) -> Foreign:
    pa = libraries.pyarrow()
    return pa.chunked_array(_arrow(parts, pa.Array), type=read_type(parts.meta))


def _arrow(parts: Parts, cls: type) -> list[Foreign]:
    children = expect.distinct(parts.runs[0], MAX_FIELDS)
    if not all(isinstance(child, cls) for child in children):
        expect.malformed(f"expected {cls.__name__}")
    return children


def _write_table(encoder: Encoder, value: Foreign) -> Node:
    return ["table", schema_meta(value.schema), encoder.run(list(value.columns))]


def _build_table(parts: Parts) -> Foreign:
    pa = libraries.pyarrow()
    table = pa.Table.from_arrays(_arrow(parts, pa.ChunkedArray), schema=read_schema(parts.meta))
    table.validate()  # each column was validated in full; this checks that they fit together
    return table


def _write_batch(encoder: Encoder, value: Foreign) -> Node:
    return ["batch", schema_meta(value.schema), encoder.run(list(value.columns))]


def _build_batch(parts: Parts) -> Foreign:
    pa = libraries.pyarrow()
    batch = pa.RecordBatch.from_arrays(_arrow(parts, pa.Array), schema=read_schema(parts.meta))
    batch.validate()
    return batch


def _write_schema(_encoder: Encoder, value: Foreign) -> Node:
    return ["schema", schema_meta(value)]


def _build_schema(parts: Parts) -> Foreign:
    return read_schema(parts.meta)


KINDS: dict[str, Kind] = {
    "arrow": Immutable(build=_build_array, runs=0),
    "chunked": Immutable(build=_build_chunked, whole=True),
    "table": Immutable(build=_build_table, whole=True),
    "batch": Immutable(build=_build_batch, whole=True),
    "schema": Immutable(build=_build_schema, runs=0),
}
