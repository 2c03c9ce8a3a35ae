"""Single values of the standard library: text, bytes, numbers, paths, ranges."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from uuid import UUID

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.node import Foreign, Immutable, Kind, Mutable, Node, Parts, Write
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_HEXADECIMAL = re.compile(r"-?[0-9a-f]+")
_DECIMAL = re.compile(r"-?(?:\d+(?:\.\d*)?(?:E[+-]?\d{1,7})?|Infinity|s?NaN\d*)", re.ASCII)
_LONGEST_DECIMAL = 10_000
_LARGEST_EXPONENT = 100_000  # `int(Decimal("1E+999999999"))` would write a billion digits
_LONGEST_FRACTION = (
    3_500  # hexadecimal digits of a part: reducing takes quadratic time, and Python prints no more
)
_LONGEST_PATH = 65_536
_PATHS: dict[str, type[PurePath]] = {"posix": PurePosixPath, "windows": PureWindowsPath, "path": Path}


def _write_text(encoder: Encoder, value: str) -> Node:
    return ["text", encoder.buffer(value.encode("utf-8", "surrogatepass"), value, align=False)]


def _build_text(parts: Parts) -> str:
    return str(parts.source.region.take(parts.meta), "utf-8", "surrogatepass")


def _write_bytes(encoder: Encoder, value: bytes) -> Node:
    return ["bytes", encoder.buffer(value, value, align=False)]


def _build_bytes(parts: Parts) -> bytes:
    return bytes(parts.source.region.take(parts.meta))


def _write_bytearray(encoder: Encoder, value: bytearray) -> Node:
    return ["bytearray", encoder.buffer(value, value, align=False)]


def _bytearray_shell(parts: Parts) -> bytearray:
    return bytearray(parts.source.region.take(parts.meta))


def _fill_nothing(shell: Foreign, _parts: Parts) -> None:
    """The shell is complete: nothing in it can refer to anything."""


def _write_integer(encoder: Encoder, value: int) -> Node:
    if value.bit_length() > 4 * encoder.limits.integer_digits:
        raise UnsafeValueError("int", f"more than {encoder.limits.integer_digits} hexadecimal digits")
    return ["int", f"{value:x}"]


def _build_integer(parts: Parts) -> int:
    digits = expect.text(parts.meta, parts.source.limits.integer_digits + 1)
    if not _HEXADECIMAL.fullmatch(digits):
        expect.malformed("expected hexadecimal digits")
    return int(digits, 16)  # linear: the base is a power of two


def _write_complex(_encoder: Encoder, value: complex) -> Node:
    return ["complex", [value.real, value.imag]]


def _build_complex(parts: Parts) -> complex:
    real, imaginary = expect.items(parts.meta, 2)
    return complex(expect.number(real), expect.number(imaginary))


def _write_decimal(_encoder: Encoder, value: Decimal) -> Node:
    text = str(value)
    exponent = value.as_tuple().exponent
    if len(text) > _LONGEST_DECIMAL or (isinstance(exponent, int) and abs(exponent) > _LARGEST_EXPONENT):
        raise UnsafeValueError("decimal.Decimal", "too many digits")
    return ["decimal", text]


def _build_decimal(parts: Parts) -> Decimal:
    text = expect.text(parts.meta, _LONGEST_DECIMAL)
    if not _DECIMAL.fullmatch(text):
        expect.malformed("expected a decimal number")
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > _LARGEST_EXPONENT:
        expect.malformed("a decimal exponent is too large")
    return value


def _write_fraction(_encoder: Encoder, value: Fraction) -> Node:
    parts = [f"{value.numerator:x}", f"{value.denominator:x}"]
    if max(map(len, parts)) > _LONGEST_FRACTION:
        raise UnsafeValueError("fractions.Fraction", f"more than {_LONGEST_FRACTION} hexadecimal digits")
    return ["fraction", parts]


def _build_fraction(parts: Parts) -> Fraction:
    texts = [expect.text(part, _LONGEST_FRACTION) for part in expect.items(parts.meta, 2)]
    if not all(map(_HEXADECIMAL.fullmatch, texts)):
        expect.malformed("expected hexadecimal digits")
    return Fraction(*(int(text, 16) for text in texts))


def _write_uuid(_encoder: Encoder, value: UUID) -> Node:
    return ["uuid", value.hex]


def _build_uuid(parts: Parts) -> UUID:
    digits = expect.text(parts.meta, 32)
    if len(digits) != 32 or not _HEXADECIMAL.fullmatch(digits):
        expect.malformed("expected the digits of a UUID")
    return UUID(int=int(digits, 16))


def _write_path(_encoder: Encoder, value: PurePath) -> Node:
    kind = next(name for name, cls in _PATHS.items() if type(value) is cls or name == "path")
    text = str(value)
    if len(text) > _LONGEST_PATH:
        raise UnsafeValueError(class_name(type(value)), "too long")
    return ["path", [kind, text]]


def _build_path(parts: Parts) -> PurePath:
    kind, text = expect.items(parts.meta, 2)
    return _PATHS[expect.choice(kind, tuple(_PATHS))](expect.text(text, _LONGEST_PATH))


def _write_range(encoder: Encoder, value: range) -> Node:
    return ["range", None, encoder.run([value.start, value.stop, value.step])]


def _build_range(parts: Parts) -> range:
    start, stop, step = (_exact_int(bound) for bound in expect.children(parts, 3))
    return range(start, stop, step)


def _exact_int(value: object) -> int:
    return value if type(value) is int else expect.malformed("expected an integer")


def _write_slice(encoder: Encoder, value: slice) -> Node:
    parts = [value.start, value.stop, value.step]
    if not all(part is None or type(part) in (int, float, str) for part in parts):
        raise UnsafeValueError("slice", "its bounds are neither numbers nor text")
    return ["slice", None, encoder.run(parts)]


def _build_slice(parts: Parts) -> slice:
    start, stop, step = bounds = expect.children(parts, 3)
    # Slices in slices are freed by recursion in C without a check: enough of them end the process.
    if not all(bound is None or type(bound) in (int, float, str) for bound in bounds):
        expect.malformed("the bounds of a slice are numbers or text")
    return slice(start, stop, step)


def _write_ellipsis(_encoder: Encoder, _value: object) -> Node:
    return ["ellipsis", None]


def _build_ellipsis(_parts: Parts) -> object:
    return ...


WRITERS: dict[type, Write] = {
    str: _write_text,
    bytes: _write_bytes,
    bytearray: _write_bytearray,
    int: _write_integer,
    complex: _write_complex,
    Decimal: _write_decimal,
    Fraction: _write_fraction,
    UUID: _write_uuid,
    PurePosixPath: _write_path,
    PureWindowsPath: _write_path,
    type(Path()): _write_path,
    range: _write_range,
    slice: _write_slice,
    type(...): _write_ellipsis,
}

KINDS: dict[str, Kind] = {
    "text": Immutable(build=_build_text, runs=0),
    "bytes": Immutable(build=_build_bytes, runs=0),
    "bytearray": Mutable(shell=_bytearray_shell, fill=_fill_nothing, runs=0),
    "int": Immutable(build=_build_integer, runs=0),
    "complex": Immutable(build=_build_complex, runs=0),
    "decimal": Immutable(build=_build_decimal, runs=0),
    "fraction": Immutable(build=_build_fraction, runs=0),
    "uuid": Immutable(build=_build_uuid, runs=0),
    "path": Immutable(build=_build_path, runs=0),
    "range": Immutable(build=_build_range),
    "slice": Immutable(build=_build_slice),
    "ellipsis": Immutable(build=_build_ellipsis, runs=0),
}
