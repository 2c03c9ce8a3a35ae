"""Encodings by a hostile encoder: each attack by name, and the refusal that it gets."""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from cenote_security.errors import MalformedValueError, UnsafeValueError
from cenote_security.values import Limits, decode
from cenote_security.values.decoder import class_table, load

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

MERSENNE = 2**61 - 1  # hash(k * MERSENNE) == 0


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


def table(*nodes: Any, root: Any = None) -> bytes:
    """A header of these nodes; its root is the last one."""
    return json.dumps([1, [len(nodes) - 1] if root is None else root, list(nodes)]).encode()


def array(
    dtype: Any, shape: list[int], where: list[int], order: str = "C", flavour: str = "ndarray"
) -> list[Any]:
    return ["array", [dtype, shape, order, flavour, where]]


def arrow(kind: Any, length: int, buffers: list[Any], children: list[Any] | None = None) -> list[Any]:
    return ["arrow", [kind, [length, buffers, children or []]]]


def chain(count: int, link: Any, first: Any) -> Callable[[], bytes]:
    """Nodes, each of which holds the previous one."""
    return lambda: table(first, *(link(number) for number in range(count)))


INT = "<i8"
INDEX = ["rangeindex", [0, 2, 1], [None]]
FIELD = ["f", "int64", True, None]

# Large ones are written when they are used: each process of a run collects all of this.
ATTACKS: dict[str, tuple[str, bytes | Callable[[], bytes]]] = {
    "nothing": ("JSONDecodeError", b""),
    "not text": ("UnicodeDecodeError", b"\xff\xfe"),
    "not JSON": ("JSONDecodeError", b"[1,"),
    "not a list": ("expected a list of", b"{}"),
    "another version": ("version", b"[2,null,[]]"),
    "a version that is true": ("version True", b"[true,null,[]]"),
    "nested JSON": ("RecursionError|recursion", b"[1," + b"[" * 100_000 + b"]" * 100_000 + b",[]]"),
    "a number of a million digits": ("an inline number is too long", b"[1," + b"9" * 1_000_000 + b",[]]"),
    "a reference to nothing": ("expected an integer", b"[1,[0],[]]"),
    "a negative reference": ("expected an integer", table(["list", None, [[-1]]])),
    "a reference that is a float": ("expected an integer", table(["list", None, [[0.0]]])),
    "a reference that is a bool": ("expected an integer", table(["list", None, [[False]]])),
    "a reference that is huge": ("expected an integer", table(["list", None, [[2**62]]])),
    "a reference to two": ("expected a list of", table(["list", None, [[0, 0]]])),
    "an object as child": ("an object where a child belongs", table(["list", None, [{}]])),
    "an object as root": ("an object where a child belongs", b'[1,{"q":[0,0]},[]]'),
    "an unknown tag": ("node", table(["pickle", "cos"])),
    "a tag that is a list": ("node", table([["list"], None, []])),
    "an empty node": ("node", table([])),
    "a node that is text": ("expected a list", table("list")),
    "a missing run": ("node", table(["list", None])),
    "one run too many": ("node", table(["list", None, [], []])),
    "a run that is text": ("expected a list", table(["list", None, "abc"])),
    "a packed run of objects": ("expected one of q, d", table(["list", None, {"O": [0, 0]}])),
    "a packed run outside the region": ("expected an integer", table(["list", None, {"q": [0, 10**12]}])),
    "a packed run of half a number": ("ValueError", table(["list", None, {"q": [0, 7]}])),
    "a tuple in itself": ("refers to itself", table(["tuple", None, [[0]]])),
    "tuples in each other": (
        "refers to itself",
        table(["tuple", None, [[1]]], ["tuple", None, [[0]]]),
    ),
    "a frame in its own attrs": (
        "refers to itself",
        table(["frame", None, [[2], [2]], [], [[1]]], ["dict", None, ["x"], [[0]]], INDEX),
    ),
    "a key that is no key": ("TypeError", table(["list", None, []], ["dict", None, [[0]], [1]])),
    "a key twice": ("a key of a dict is repeated", table(["dict", None, ["a", "a"], [1, 2]])),
    "keys without values": ("ValueError", table(["dict", None, ["a", "b"], [1]])),
    "an element twice": ("an element of a set is repeated", table(["set", None, [1, 1.0]])),
    "a factory by name": (
        "expected one of none",
        table(["defaultdict", "eval", [], []]),
    ),
    "an attribute that is special": ("a name is repeated", table(["namespace", ["a", "a"], [1, 2]])),
    "a deque of huge bound": ("an inline number is too long", table(["deque", 2**100, []])),
    # text and numbers
    "text outside the region": ("expected an integer", table(["text", [0, 10**9]])),
    "a negative offset": ("expected an integer", table(["text", [-1, 1]])),
    "an integer that is no number": ("expected hexadecimal digits", table(["int", "__import__('os')"])),
    "an integer with underscores": ("expected hexadecimal digits", table(["int", "1_0"])),
    "an integer of a megabyte": ("expected text", table(["int", "f" * 1_000_000])),
    "a decimal with a huge exponent": ("a decimal exponent is too large", table(["decimal", "1E+9999999"])),
    "a decimal with a longer exponent": ("expected a decimal number", table(["decimal", "1E+999999999999"])),
    "a decimal in another script": ("expected a decimal number", table(["decimal", "\u0661"])),
    "a UUID too short": ("expected the digits of a UUID", table(["uuid", "ff"])),
    "a path of another kind": ("expected one of posix, windows, path", table(["path", ["module", "os"]])),
    "a range of floats": ("expected an integer", table(["range", None, [0, 1.5, 1]])),
    "a range without a step": ("ValueError", table(["range", None, [0, 1, 0]])),
    "slices in slices": (
        "the bounds of a slice are numbers or text",
        chain(20_000, lambda n: ["slice", None, [[n], None, None]], ["slice", None, [0, 0, 0]]),
    ),
    # times
    "month thirteen": ("ValueError", table(["datetime", [2020, 13, 1, 0, 0, 0, 0, 0], [None]])),
    "year ten thousand": ("expected an integer", table(["date", [10_000, 1, 1]])),
    "a zone that is a string": (
        "expected a time zone",
        table(["datetime", [2020, 1, 1, 0, 0, 0, 0, 0], ["UTC"]]),
    ),
    "a zone outside the database": (
        "expected the name of a time zone",
        table(["zone", "../../../etc/passwd"]),
    ),
    "a zone by absolute path": ("expected the name of a time zone", table(["zone", "/etc/localtime"])),
    "a zone that is a file of another kind": (
        "expected the name of a time zone",
        table(["zone", "tzdata.zi"]),
    ),
    "a zone that is a directory": ("ZoneInfoNotFoundError|IsADirectory", table(["zone", "Europe"])),
    "a zone that is not there": ("ZoneInfoNotFoundError", table(["zone", "Mars/Olympus"])),
    "a zone with a long name": (
        "expected the name of a time zone",
        lambda: table(["zone", "A" * 10_000_000]),
    ),
    "an offset of a year": ("ValueError", table(["zone", [365, 0, 0, None]])),
    # arrays
    "an array without bytes": (
        "the size of an array is not that of its buffe",
        table(array(INT, [10**12], [0, 0])),
    ),
    "an array of other size": (
        "the size of an array is not that of its buffe",
        table(array(INT, [2], [0, 8])),
    ),
    "a product that overflows": (
        "the size of an array is not that of its buffe",
        table(array(INT, [2**32, 2**32], [0, 0])),
    ),
    "dimensions beside a zero": (
        "an array without content has large dimensions",
        table(array(INT, [0, 10**15], [0, 0])),
    ),
    "elements without bytes": (
        "an array without content has large dimensions",
        table(array("|S0", [10**12], [0, 0])),
    ),
    "a negative dimension": ("expected an integer", table(array(INT, [-1, -1], [0, 8]))),
    "a hundred dimensions": ("more than 32 dimensions", table(array("|u1", [1] * 100, [0, 1]))),
    "an order of its own": ("expected one of C, F", table(array(INT, [1], [0, 8], order="K"))),
    "a subclass by name": (
        "expected one of ndarray, matrix, recarray",
        table(array(INT, [1], [0, 8], flavour="memmap")),
    ),
    "pointers": ("expected a data type", table(array("|O8", [1], [0, 8]))),
    "pointers by name": ("expected a data type", table(array("object", [1], [0, 8]))),
    "pointers in a record": (
        "expected a data type",
        table(array(["struct", 8, False, [["a", None, 0, "|O8"]]], [1], [0, 8])),
    ),
    "a type as code": ("expected a data type", table(array("i4,(2,__import__('os'))f8", [1], [0, 8]))),
    "a type of many repeats": ("expected a data type", table(array("9999999i4", [1], [0, 8]))),
    "a huge element": ("elements of more than 16777216 bytes", table(array("|V99999999", [0], [0, 0]))),
    "a huge element by parts": ("ValueError", table(array(["sub", "|V9999999", [9999]], [0], [0, 0]))),
    "types in types": (
        "expected a data type",
        table(array(json.loads('["sub",' * 50 + '"<i8"' + ",[1]]" * 50), [1], [0, 8])),
    ),
    "a field outside its record": (
        "ValueError",
        table(array(["struct", 8, False, [["a", None, 4, "<i8"]]], [1], [0, 8])),
    ),
    "a field at a huge offset": (
        "expected an integer",
        table(array(["struct", 8, False, [["a", None, 2**40, "<i8"]]], [1], [0, 8])),
    ),
    "a million fields": (
        "expected the fields of a data type",
        lambda: table(array(["struct", 8, False, [["a", None, 0, "|u1"]] * 100_000], [1], [0, 8])),
    ),
    "booleans of two": ("a boolean is neither", table(array("|b1", [8], [16, 8]))),
    "booleans of two in a record": (
        "a boolean is neither",
        table(array(["struct", 2, False, [["a", None, 1, "|b1"]]], [4], [16, 8])),
    ),
    "characters beyond Unicode": ("a character beyond Unicode", table(array("<U2", [1], [16, 8]))),
    "a float of seven bytes": ("expected a data type", table(array("<f7", [1], [0, 7]))),
    "a unit of its own": ("expected a data type", table(array("<M8[os]", [1], [0, 8]))),
    "objects without children": (
        "the size of an array is not that of its buffe",
        table(["objects", [10**12], []]),
    ),
    "objects beside a zero": (
        "an array without content has large dimensions",
        table(["objects", [0, 10**12], []]),
    ),
    "objects in objects": (
        "a key, an array of objects or a defaultdict n",
        chain(20_000, lambda n: ["objects", [1], [[n]]], ["list", None, []]),
    ),
    "defaultdicts in defaultdicts": (
        "a key, an array of objects or a defaultdict n",
        chain(20_000, lambda n: ["defaultdict", "list", ["a"], [[n]]], ["list", None, []]),
    ),
    "a scalar of other size": (
        "the size of an array is not that of its buffe",
        table(["npscalar", [INT, "00"]]),
    ),
    "a scalar in no hexadecimal": ("ValueError", table(["npscalar", [INT, "zz" * 8]])),
    "a mask of numbers": (
        "a masked array of objects, or of two types",
        table(array(INT, [1], [0, 8]), array("|u1", [1], [8, 1]), ["masked", [False], [[0], [1], [0]]]),
    ),
    "a mask of other shape": (
        "a masked array of objects, or of two types",
        table(array(INT, [1], [0, 8]), array("|b1", [2], [40, 2]), ["masked", [False], [[0], [1], [0]]]),
    ),
    "a masked list": ("expected arrays", table(["list", None, []], ["masked", [False], [[0], None, [0]]])),
    # one buffer, two owners
    "two arrays over one buffer": (
        "buffers overlap",
        table(array(INT, [1], [0, 8]), array(INT, [1], [0, 8]), ["list", None, [[0], [1]]]),
    ),
    "two arrays that overlap": (
        "buffers overlap",
        table(array(INT, [1], [0, 8]), array(INT, [1], [4, 8]), ["list", None, [[0], [1]]]),
    ),
    "one buffer copied ten thousand times": (
        "buffers overlap",
        lambda: table(*([["bytes", [0, 64]]] * 10_000)),
    ),
    # pandas
    "a column without an index": (
        "expected an index",
        table(array(INT, [2], [0, 16]), ["series", None, [[0], None], [None], [None]]),
    ),
    "a column of other length": (
        "a column is not as long as its index",
        table(array(INT, [3], [0, 24]), INDEX, ["series", None, [[0], [1]], [None], [None]]),
    ),
    "a column of two dimensions": (
        "expected a column",
        table(array(INT, [2, 1], [0, 16]), INDEX, ["series", None, [[0], [1]], [None], [None]]),
    ),
    "a column of text by width": (
        "expected a column",
        table(array("|S8", [2], [0, 16]), INDEX, ["series", None, [[0], [1]], [None], [None]]),
    ),
    "a column that is a list": (
        "expected a column",
        table(["list", None, [1, 2]], INDEX, ["series", None, [[0], [1]], [None], [None]]),
    ),
    "a name that is no key": (
        "TypeError",
        table(
            array(INT, [2], [0, 16]), INDEX, ["list", None, []], ["series", None, [[0], [1]], [[2]], [None]]
        ),
    ),
    "attrs that are a list": (
        "attrs are a dict",
        table(
            array(INT, [2], [0, 16]), INDEX, ["list", None, []], ["series", None, [[0], [1]], [None], [[2]]]
        ),
    ),
    "a block of other width": (
        "ValueError",
        table(array(INT, [2, 1], [0, 16]), INDEX, ["block", None, [[1], [1]], [[0]], [None]]),
    ),
    "fewer columns than names": ("ValueError", table(INDEX, ["frame", None, [[0], [0]], [], [None]])),
    "a range index without a step": ("ValueError", table(["rangeindex", [0, 1, 0], [None]])),
    "codes of categories that are not there": (
        "a code names nothing",
        table(
            array("|i1", [1], [16, 1]),
            array(INT, [1], [0, 8]),
            ["index", None, [[1]], [None]],
            ["categorical", False, [[0], [2]]],
        ),
    ),
    "codes without a sign": (
        "expected a column",
        table(
            array("|u1", [1], [16, 1]),
            array(INT, [1], [0, 8]),
            ["index", None, [[1]], [None]],
            ["categorical", False, [[0], [2]]],
        ),
    ),
    "categories that are a list": (
        "categories are an index",
        table(array("|i1", [1], [16, 1]), ["list", None, [1]], ["categorical", False, [[0], [1]]]),
    ),
    "codes of levels that are not there": (
        "a code names nothing",
        table(
            array("|i1", [1], [16, 1]),
            array(INT, [1], [0, 8]),
            ["index", None, [[1]], [None]],
            ["multiindex", None, [[2]], [[0]], [None]],
        ),
    ),
    "levels of different length": (
        "the levels of an index do not fit together",
        table(
            array("|i1", [1], [40, 1]),
            array("|i1", [2], [41, 2]),
            array(INT, [1], [0, 8]),
            ["index", None, [[2]], [None]],
            ["multiindex", None, [[3], [3]], [[0], [1]], [None, None]],
        ),
    ),
    "levels without codes": ("ValueError", table(INDEX, ["multiindex", None, [[0]], [], [None]])),
    "no levels": ("the levels of an index do not fit together", table(["multiindex", None, [], [], []])),
    "a frequency as code": (
        "expected a frequency",
        table(array("<M8[ns]", [1], [0, 8]), ["index", "os.system('x')", [[0]], [None]]),
    ),
    "a frequency of numbers": (
        "a frequency of an index without dates",
        table(array(INT, [1], [0, 8]), ["index", "D", [[0]], [None]]),
    ),
    "a frequency that does not hold": (
        "ValueError",
        table(array("<M8[ns]", [2], [0, 16]), ["index", "D", [[0]], [None]]),
    ),
    "periods of another frequency": (
        "expected a frequency",
        table(array(INT, [1], [0, 8]), ["periods", "../x", [[0]]]),
    ),
    "periods of floats": ("expected a column", table(array("<f8", [1], [0, 8]), ["periods", "M", [[0]]])),
    "intervals of objects": (
        "the ends of intervals are indexes of numbers",
        table(["objects", [1], [1]], ["index", None, [[0]], [None]], ["intervals", "left", [[1], [1]]]),
    ),
    "an interval of lists": ("ValueError", table(["list", None, []], ["interval", "left", [[0], [0]]])),
    "an interval that ends before it begins": ("ValueError", table(["interval", "left", [2, 1]])),
    "a mask that does not fit": (
        "a mask does not fit its column",
        table(array(INT, [1], [0, 8]), array("|b1", [2], [42, 2]), ["nullable", None, [[0], [1]]]),
    ),
    "a nullable column in other byte order": (
        "a mask does not fit its column",
        table(array(">i8", [1], [0, 8]), array("|b1", [1], [42, 1]), ["nullable", None, [[0], [1]]]),
    ),
    "text of numbers": (
        "expected text",
        table(arrow("int64", 1, [None, [0, 8]]), ["strings", ["pyarrow", "NA"], [[0]]]),
    ),
    "text that is no text": (
        "expected a list of text",
        table(["list", None, ["a", 1]], ["strings", ["python", "NA"], [[0]]]),
    ),
    "text in another storage": (
        "expected one of python, pyarrow",
        table(["list", None, ["a"]], ["strings", ["os", "NA"], [[0]]]),
    ),
    "a timestamp that is not a time": ("expected an integer", table(["timestamp", [-(2**63), "ns", None]])),
    "a timestamp of another unit": ("expected one of s, ms, us, ns", table(["timestamp", [0, "D", None]])),
    "a timestamp in another place": (
        "expected the name of a time zone",
        table(["timestamp", [0, "ns", "/etc/passwd"]]),
    ),
    # Arrow
    "more elements than bytes": (
        "an Arrow array is longer than its buffers",
        table(arrow("int64", 10**15, [None, [0, 8]])),
    ),
    "more elements than validity": ("ArrowInvalid", table(arrow("int64", 40, [[0, 1], [8, 320]]))),
    "no buffer": ("an Arrow array is longer than its buffers", table(arrow("int64", 1, [None, None]))),
    "a buffer too many": ("expected a list of", table(arrow("int64", 1, [None, [0, 8], [8, 8]]))),
    "nulls without end": ("expected an integer", table(arrow("null", 10**15, [None]))),
    "nulls in a list without end": (
        "expected an integer",
        table(arrow(["large_list", ["f", "null", True, None]], 1, [None, [0, 16]], [[10**15, [None], []]])),
    ),
    "structures of nothing": ("expected an Arrow type", table(arrow(["struct", []], 10**15, [None]))),
    "lists of nothing": (
        "expected an integer",
        table(arrow(["fixed_list", FIELD, 0], 10**15, [None], [[0, [None, None], []]])),
    ),
    "bytes of nothing": ("expected an integer", table(arrow(["binary", 0], 10**15, [None, None]))),
    "children of other length": (
        "an Arrow array is longer than its buffers",
        table(arrow(["struct", [FIELD]], 3, [None], [[1, [None, [0, 8]], []]])),
    ),
    "text beyond its bytes": ("ArrowInvalid", table(arrow("string", 1, [None, [24, 8], [0, 4]]))),
    "text that is not UTF-8": ("ArrowInvalid", table(arrow("string", 1, [None, [32, 8], [16, 4]]))),
    "a dictionary index out of range": (
        "ArrowIndexError",
        table(
            arrow(
                ["dictionary", "int8", "int64", False],
                1,
                [],
                [[1, [None, [16, 1]], []], [1, [None, [0, 8]], []]],
            )
        ),
    ),
    "a dictionary of text indexes": (
        "TypeError",
        table(
            arrow(
                ["dictionary", "string", "int64", False],
                0,
                [],
                [[0, [None, None, None], []], [0, [None, None], []]],
            )
        ),
    ),
    "an Arrow type by name": ("expected an Arrow type", table(arrow("py_extension_type", 0, [None]))),
    "an Arrow type that is a function": (
        "expected an Arrow type",
        table(arrow("register_extension_type", 0, [None])),
    ),
    "an Arrow zone that is a path": (
        "expected a time zone",
        table(arrow(["timestamp", "us", "../../etc/passwd"], 0, [None, None])),
    ),
    "Arrow types in Arrow types": (
        "a type nests too deeply",
        table(arrow(json.loads('["list",["f",' * 100 + '"int64"' + ",true,null]]" * 100), 0, [None, None])),
    ),
    "a decimal of no width": ("expected an integer", table(arrow(["decimal", 128, 77, 0], 0, [None, None]))),
    "a buffer between words": ("an Arrow buffer is not aligned", table(arrow("int64", 1, [None, [1, 8]]))),
    "a table of lists": (
        "expected ChunkedArray",
        table(["list", None, []], ["table", [[FIELD], None], [[0]]]),
    ),
    "a column of another type": (
        "ArrowInvalid",
        table(
            arrow("string", 0, [None, None, None]),
            ["chunked", "string", [[0]]],
            ["table", [[FIELD], None], [[1]]],
        ),
    ),
    "a schema of too many columns": (
        "more than 100000 columns",
        lambda: table(["schema", [[FIELD] * 100_001, None]]),
    ),
    # one part, used again and again
    "one column a hundred thousand times": (
        "different parts",
        lambda: table(array(INT, [2], [0, 16]), INDEX, ["frame", None, [[1], [1]], [[0]] * 100_000, [None]]),
    ),
    "one chunk a hundred thousand times": (
        "different parts",
        lambda: table(arrow("int64", 1, [None, [0, 8]]), ["chunked", "int64", [[0]] * 100_000]),
    ),
    "one level a hundred thousand times": (
        "more than 1000 levels",
        lambda: table(
            array("|i1", [1], [40, 1]), INDEX, ["multiindex", None, [[1]] * 100_000, [[0]] * 100_000, []]
        ),
    ),
    # work
    "a key that takes 2**40 steps to hash": (
        "it takes too many steps to rebuild",
        table(
            ["tuple", None, []],
            *(["tuple", None, [[n], [n]]] for n in range(40)),
            ["dict", None, [[40]], [1]],
        ),
    ),
    "a key of equal frozensets": (
        "it takes too many steps to rebuild",
        table(
            ["frozenset", None, []],
            *(["tuple", None, [[n], [n]]] for n in range(40)),
            ["frozenset", None, [[40]]],
        ),
    ),
    "a name that takes 2**40 steps to hash": (
        "it takes too many steps to rebuild",
        table(
            ["tuple", None, []],
            *(["tuple", None, [[n], [n]]] for n in range(40)),
            ["rangeindex", [0, 1, 1], [[40]]],
        ),
    ),
    "a key nested deeper than the C stack": (
        "a key, an array of objects or a defaultdict n",
        lambda: table(
            ["tuple", None, []], *(["tuple", None, [[n]]] for n in range(50_000)), ["set", None, [[50_000]]]
        ),
    ),
    "keys with one hash": (
        "it takes too many steps to rebuild",
        lambda: table(
            *(["int", f"{n * MERSENNE:x}"] for n in range(1, 50_000)),
            ["set", None, [[n] for n in range(49_999)]],
        ),
    ),
    "keys with one hash in tuples": (
        "it takes too many steps to rebuild",
        lambda: table(
            *(["int", f"{n * MERSENNE:x}"] for n in range(1, 20_000)),
            *(["tuple", None, [[n]]] for n in range(19_999)),
            ["dict", None, [[19_999 + n] for n in range(19_999)], [0] * 19_999],
        ),
    ),
}

REGION = (
    struct.pack("<qq", 2, 9)  # 0: an index that is out of range; a second number
    + b"\x02\xff\xfe\xfd\x02\x02\x02\x02"  # 16: no booleans, no UTF-8, no codes
    + struct.pack("<ii", 0, 100)  # 24: offsets beyond any text
    + struct.pack("<ii", 0, 4)  # 32: offsets of four bytes
    + bytes(8)  # 40: booleans, codes
    + b"\x01" * 4000
)


@pytest.mark.sweep
@pytest.mark.parametrize(("reason", "header"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_refused(reason: str, header: bytes | Callable[[], bytes]) -> None:
    """Each attack ends in MalformedValueError, for the intended reason, and soon."""
    written = header if isinstance(header, bytes) else header()
    started = time.process_time()
    with pytest.raises(MalformedValueError, match=reason):
        decode(written, REGION)
    assert 20 > time.process_time() - started


def test_a_hash_bomb_of_forward_references_is_refused() -> None:
    """Written first to last, each instance is complete before those that it holds: its weight is unknown then."""
    (name,) = class_table([Pair])
    count = 60
    nodes = [["instance", [name, ["left", "right"]], [[n + 1], [n + 1]]] for n in range(count)]
    last = ["instance", [name, ["left", "right"]], [1, 2]]
    header = table(*nodes, last, ["dict", None, [[0]], [1]])
    with pytest.raises(MalformedValueError):
        load(header, classes=[Pair])


def test_a_hash_bomb_of_instances_is_refused() -> None:
    """The same in the order of an honest encoder."""
    (name,) = class_table([Pair])
    nodes = [["instance", [name, ["left", "right"]], [[n], [n]]] for n in range(60)]
    header = table(["tuple", None, []], *nodes, ["dict", None, [[60]], [1]])
    with pytest.raises(MalformedValueError, match="steps"):
        load(header, classes=[Pair])


@pytest.mark.parametrize("reference", ["os:system", "builtins:eval", ":", "", "a" * 1000, "x.y:z<locals>"])
def test_a_class_reference_is_only_compared(reference: str) -> None:
    """A class name from a jail is not looked up anywhere."""
    with pytest.raises(UnsafeValueError):
        decode(table(["instance", [reference, []], []]))


def test_a_class_name_that_cannot_be_shown_is_refused() -> None:
    """Control characters of a jail do not reach a terminal through an error."""
    with pytest.raises(MalformedValueError, match="printable"):
        decode(table(["instance", ["a:\x1b[2J", []], []]))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(header_bytes=10), "bytes of text"),
        (Limits(brackets=3), "lists"),
        (Limits(nodes=0), "nodes"),
        (Limits(region_bytes=7), "bytes of buffers"),
    ],
    ids=["header", "brackets", "nodes", "region"],
)
def test_limits_hold(limits: Limits, reason: str) -> None:
    """Each bound is checked before the work that it limits."""
    with pytest.raises(MalformedValueError, match=reason):
        decode(table(["list", None, []]), b"12345678", limits=limits)


def test_at_the_limit_a_value_passes() -> None:
    """The bounds are inclusive."""
    header = table(["list", None, []])
    limits = Limits(header_bytes=len(header), brackets=header.count(b"["), nodes=1, region_bytes=8)
    assert [] == decode(header, b"12345678", limits=limits)


def test_pickles_are_only_bytes() -> None:
    """A pickle in any place stays bytes."""
    pickle = base64.b64decode("gASVDAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOULg==")
    assert pickle == decode(table(["bytes", [0, len(pickle)]]), pickle)
