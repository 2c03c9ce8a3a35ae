"""Arrow arrays and tables cross by their buffers, and are validated in full."""

from __future__ import annotations

from typing import Any

import pytest

from cenote_security.errors import UnsafeValueError
from cenote_security.values import decode, encode

pa = pytest.importorskip("pyarrow")

COLUMNS = {
    "int": pa.array([1, 2, None, 4]),
    "uint8": pa.array([1, 2, 3, 4], pa.uint8()),
    "half": pa.array([1, 2, 3, None]).cast(pa.float16()),
    "double": pa.array([1.5, None, float("nan"), 2.0]),
    "bool": pa.array([True, None, False, True]),
    "null": pa.nulls(4),
    "text": pa.array(["a", None, "é€", ""]),
    "large text": pa.array(["a", None, "b", "c"], pa.large_string()),
    "bytes": pa.array([b"a", None, b"\xff", b""]),
    "fixed bytes": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "date": pa.array([1, 2, None, 4], pa.date32()),
    "date64": pa.array([86_400_000, None, 0, 0], pa.date64()),
    "time": pa.array([1, 2, None, 4], pa.time32("s")),
    "time64": pa.array([1, 2, None, 4], pa.time64("ns")),
    "timestamp": pa.array([1, 2, None, 4], pa.timestamp("us", "Europe/Berlin")),
    "offset": pa.array([1, 2, None, 4], pa.timestamp("ns", "+05:30")),
    "duration": pa.array([1, 2, None, 4], pa.duration("ms")),
    "decimal": pa.array([1, 2, None, 4]).cast(pa.decimal128(30, 2)),
    "decimal256": pa.array([1, 2, None, 4]).cast(pa.decimal256(60, 2)),
    "list": pa.array([[1, 2], [], None, [3]]),
    "large list": pa.array([["a"], [], None, [None]], pa.large_list(pa.string())),
    "fixed list": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
    "empty lists": pa.array([[], [], None, []]),
    "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}, {"x": 2, "y": []}]),
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "dictionary in list": pa.array(
        [["a"], ["b", "a"], None, []], pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
}


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.header, encoded.region())


@pytest.mark.parametrize("array", COLUMNS.values(), ids=COLUMNS)
def test_an_array_comes_back_equal(array: Any) -> None:
    """Whole, sliced at either end, and empty; of the same type."""
    for part in (array, array.slice(1), array.slice(1, 2), array.slice(0, 0)):
        found = roundtrip(part)
        assert part.type == found.type
        assert str(part.to_pylist()) == str(found.to_pylist())  # as text: not-a-number equals itself


def test_a_table_comes_back_equal() -> None:
    """All columns, the schema with its metadata, and the chunks."""
    schema = pa.schema(
        [pa.field("n", pa.int64(), nullable=False, metadata={"unit": "m"})], metadata={b"\xff": b"v"}
    )
    table = pa.Table.from_arrays([pa.chunked_array([[1, 2], [3]])], schema=schema)
    found = roundtrip(table)
    assert table.equals(found, check_metadata=True)
    assert [2, 1] == [len(chunk) for chunk in found.column(0).chunks]


def test_columns_of_one_name() -> None:
    """Names need not be unique."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert table.equals(roundtrip(table))


def test_other_containers_come_back_equal() -> None:
    """Chunked arrays (also without chunks), record batches, schemas."""
    batch = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", "y"]})
    for value in (batch, batch.schema, pa.chunked_array([[1], [2]]), pa.chunked_array([], pa.string())):
        assert value.equals(roundtrip(value))


def test_a_slice_does_not_bring_the_rest() -> None:
    """Ten rows of a million are ten rows in the encoding."""
    array = pa.array(range(1_000_000))
    assert encode(array.slice(500, 10)).size < 1000


def test_buffers_are_not_copied() -> None:
    """The pieces are the buffers of the array."""
    array = pa.array(range(1000))
    addresses = [pa.py_buffer(piece).address for piece in encode(array).pieces]
    assert array.buffers()[1].address in addresses


def test_a_little_spare_room_is_not_worth_a_copy() -> None:
    """Arrow rounds its buffers up, so an array rarely fills them to the last byte."""
    full = pa.array([f"customer {n}" for n in range(10_000)])
    array = pa.Array.from_buffers(full.type, len(full) - 1, full.buffers())
    assert array.nbytes < array.get_total_buffer_size()
    addresses = [pa.py_buffer(piece).address for piece in encode(array).pieces]
    assert full.buffers()[2].address in addresses
    assert array.equals(roundtrip(array))


@pytest.mark.parametrize(
    "value",
    [
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.RunEndEncodedArray.from_arrays([3], [1]),
        pa.array(["a"], pa.string_view()),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    ],
    ids=lambda value: str(value.type),
)
def test_types_outside_the_grammar_are_refused(value: Any) -> None:
    """The error names the type."""
    with pytest.raises(UnsafeValueError, match=r"pyarrow\.DataType"):
        encode(value)


def test_extension_types_are_refused() -> None:
    """Reading one would run any code registered under its name."""

    class Own(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.int64(), "cenote.test")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    with pytest.raises(UnsafeValueError):
        encode(pa.ExtensionArray.from_storage(Own(), pa.array([1])))
