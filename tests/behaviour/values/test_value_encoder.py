"""The encoder: what it refuses, what it never runs, what it never imports."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from cenote_security.errors import UnsafeValueError
from cenote_security.values import Limits, decode, encode
from cenote_security.values.decoder import load

BARE = """
import sys
from cenote_security import sealed_memory
from cenote_security.values import decode, encode
encoded = encode([1, {"a": (2.5, b"x")}])
assert decode(encoded.header, encoded.region()) == [1, {"a": (2.5, b"x")}]
print(sorted({"numpy", "pandas", "pyarrow", "pydantic", "ray", "grpc", "cenote", "pickle"} & set(sys.modules)))
"""


class Hostile:
    """Every access raises, except those by the interpreter itself."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was looked up on the value")

    def __len__(self) -> int:
        raise AssertionError("the length was asked for")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")

    def __hash__(self) -> int:
        raise AssertionError("it was hashed")


class Liar(dict[str, int]):
    def __len__(self) -> int:
        return 10**9


def test_plain_values_import_no_library() -> None:
    """A client without arrays never loads numpy; nothing here needs pickle."""
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_subclass_of_a_container_is_refused() -> None:
    """Its methods may return anything, so neither they nor its base's are used."""
    with pytest.raises(UnsafeValueError, match="subclass of dict"):
        encode(Liar(a=1))


def test_no_code_of_a_value_runs() -> None:
    """Objects are taken apart from outside: by their class, their dict and their slots."""
    hostile = object.__new__(Hostile)
    object.__setattr__(hostile, "a", 1)
    encoded = encode([hostile, (hostile,)])
    found: Any = load(encoded.header, classes=[Hostile])
    assert found[0] is found[1][0]
    assert {"a": 1} == object.__getattribute__(found[0], "__dict__")


@pytest.mark.parametrize(
    ("value", "limits", "detail"),
    [
        ([[], []], Limits(nodes=2), "more than 2 objects"),
        (b"x" * 9, Limits(region_bytes=8), "more than 8 bytes"),
        (["x"] * 100, Limits(header_bytes=300), "its description"),
        ([[], []], Limits(brackets=5), "its description"),
    ],
    ids=["nodes", "region", "header", "brackets"],
)
def test_what_is_too_large_is_refused_in_the_jail(value: Any, limits: Limits, detail: str) -> None:
    """The maker of a value gets the limit's error, not only its reader."""
    with pytest.raises(UnsafeValueError, match=detail):
        encode(value, limits=limits)


def test_at_the_limits_a_value_passes() -> None:
    """The bounds are inclusive."""
    limits = Limits(nodes=3, region_bytes=8)
    assert [[], b"x" * 8] == decode(*_parts(encode([[], b"x" * 8], limits=limits)), limits=limits)


def _parts(encoded: Any) -> tuple[bytes, bytes]:
    return encoded.header, encoded.region()


def test_the_pieces_are_the_region() -> None:
    """Their lengths add up, padding included."""
    encoded = encode([b"abc", list(range(100)), [0.5] * 100])
    assert encoded.size == sum(memoryview(piece).nbytes for piece in encoded.pieces) == len(encoded.region())


def test_long_runs_of_numbers_leave_the_header() -> None:
    """A million numbers are eight million bytes after a short header."""
    encoded = encode(list(range(100_000)))
    assert (800_000, True) == (encoded.size, len(encoded.header) < 100)


def test_integers_beyond_64_bits_are_not_cut() -> None:
    """A run of small numbers with one large one keeps them all."""
    value = [*range(100), 2**64, -(2**64)]
    assert value == decode(*_parts(encode(value)))


class Logging:
    def __init__(self) -> None:
        self.log = logging.getLogger("a")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([{"a": [Logging()]}], f"in {__name__}.Logging.log"),
        ({"a": 1, "stream": len}, "in dict['stream']"),
        ([len], ""),
        ({1: len}, ""),
        (len, ""),
    ],
)
def test_what_is_refused_inside_of_another_value_is_placed(value: object, place: str) -> None:
    """By the attribute or the key, since a caller that retrieves a model may not know that it holds its logger."""
    with pytest.raises(UnsafeValueError) as caught:
        encode(value)
    assert place == caught.value.detail.removeprefix("it defines its own pickling; ")
