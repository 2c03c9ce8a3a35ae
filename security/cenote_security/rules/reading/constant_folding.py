"""Computes what constant expressions spell, within bounds: `"o" + "s"`, `"".join(...)`, `bytes([...]).decode()`.

Only operations that are total, cheap and bounded are done; every result is limited, whatever the source asks for.
Operands are `Any`: a literal of the wrong type raises here as it would in the cell, and then the value is unknown.
"""

from __future__ import annotations

import ast
import base64
import binascii
import codecs
import operator
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cenote_security.rules.reading.abstract_values import Const, Items, Value, items
from cenote_security.rules.reading.known_names import names

LONGEST = 10_000
"""Characters or items of a folded value. Names that matter are short; decoy literals can be long."""

BIGGEST = 2**64

_PLAIN_FORMAT = re.compile(r"(?:[^{}]|\{\{|\}\}|\{\w*\})*")
_PLAIN_PERCENT = re.compile(r"(?:[^%]|%[sdcr%])*")
_TEXT_CODECS = {"utf-8", "utf8", "ascii", "latin-1", "latin1", "utf-16", "utf-32", "unicode_escape"}
_NAMED_CODECS = {*_TEXT_CODECS, "hex", "rot13", "rot_13", "base64"}
_TEXT_METHODS = names(
    """
    lower upper strip lstrip rstrip title capitalize swapcase casefold split rsplit splitlines partition
    rpartition removeprefix removesuffix __add__ __getitem__ hex
    """
)
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}

NAMED_CONSTANTS: Mapping[str, str] = {
    "string.ascii_letters": string.ascii_letters,
    "string.ascii_lowercase": string.ascii_lowercase,
    "string.ascii_uppercase": string.ascii_uppercase,
    "string.digits": string.digits,
    "string.printable": string.printable,
    "string.punctuation": string.punctuation,
}


class Unfoldable(Exception):
    """The value cannot be computed here, or not within bounds."""


def plain(value: Value) -> Any:
    """The Python value of constants and lists of constants. Raises Unfoldable for anything else."""
    if type(value) is Const:
        if isinstance(value.value, str | bytes) and len(value.value) > LONGEST:
            raise Unfoldable
        return value.value
    if type(value) is Items:
        return [plain(item) for item in value.values]
    raise Unfoldable


def lift(result: Any) -> Value:
    """A computed Python value as a value of the reading; None when it is of no interest or too large."""
    if isinstance(result, bool) or result is None:
        return Const(result)
    if isinstance(result, int):
        return Const(result) if abs(result) < BIGGEST else None
    if isinstance(result, str | bytes | bytearray):
        return (
            Const(bytes(result) if isinstance(result, bytearray) else result)
            if len(result) <= LONGEST
            else None
        )
    if isinstance(result, list | tuple):
        return items(map(lift, result))
    return None


def binary(operation: ast.operator, left: Value, right: Value) -> Value:
    """The value of `left <operation> right`, None when it is not known."""
    compute = _BINARY.get(type(operation))
    if compute is None:
        return None
    if type(left) is Items and type(right) is Items and type(operation) is ast.Add:
        return items(left.values + right.values)
    try:
        first, second = plain(left), plain(right)
        _check_operands(operation, first, second)
        if isinstance(operation, ast.Mod) and isinstance(second, list):
            second = tuple(second)
        return lift(compute(first, second))
    except Exception:  # noqa: BLE001  (whatever a wrong literal raises, the cell itself reports it when it runs)
        return None


def _check_operands(operation: ast.operator, left: Any, right: Any) -> None:
    if isinstance(operation, ast.Mod) and isinstance(left, str | bytes):
        text = left if isinstance(left, str) else left.decode("latin-1")
        if not _PLAIN_PERCENT.fullmatch(text):
            raise Unfoldable
        _check_filled(text.count("%"), right if isinstance(right, list) else [right])
    if isinstance(operation, ast.Mult):
        _check_product(left, right)


def _check_filled(places: int, arguments: Sequence[Any]) -> None:
    if places * max((len(str(argument)) for argument in arguments), default=0) > LONGEST * 10:
        raise Unfoldable


def _check_product(left: Any, right: Any) -> None:
    for sequence, count in ((left, right), (right, left)):
        if (
            isinstance(sequence, str | bytes | list)
            and isinstance(count, int)
            and len(sequence) * count > LONGEST
        ):
            raise Unfoldable


def method(owner: Value, name: str, arguments: Sequence[Value]) -> Value:
    """The result of a method call on a constant, None when it is not known."""
    try:
        return lift(_method(plain(owner), name, [plain(argument) for argument in arguments]))
    except Exception:  # noqa: BLE001  (as in `binary`)
        return None


def _method(owner: Any, name: str, arguments: list[Any]) -> Any:
    if isinstance(owner, list):
        return _list_method(owner, name, arguments)
    if not isinstance(owner, str | bytes):
        raise Unfoldable
    if name in _TEXT_METHODS:
        return getattr(owner, name)(*arguments)
    if name == "join":
        return _join(owner, arguments)
    if name == "replace":
        return _replace(owner, arguments)
    if name in ("encode", "decode"):
        _check_codec(arguments, _TEXT_CODECS)
        return getattr(owner, name)(*arguments)
    if name == "format" and isinstance(owner, str) and _PLAIN_FORMAT.fullmatch(owner):
        _check_filled(owner.count("{"), arguments)
        return owner.format(*arguments)
    if name == "fromhex" and isinstance(arguments[0], str):
        return bytes.fromhex(arguments[0])
    raise Unfoldable


def _list_method(owner: list[Any], name: str, arguments: list[Any]) -> Any:
    if name in ("__getitem__", "pop") and len(arguments) <= 1:
        return owner[arguments[0] if arguments else -1]
    if name == "copy":
        return owner
    raise Unfoldable


def _join(separator: str | bytes, arguments: list[Any]) -> Any:
    (parts,) = arguments
    if not isinstance(parts, list) or sum(len(part) for part in parts) > LONGEST:
        raise Unfoldable
    if len(separator) * len(parts) > LONGEST:
        raise Unfoldable
    return separator.join(parts)


def _replace(text: str | bytes, arguments: list[Any]) -> Any:
    longest = max(len(argument) for argument in arguments[:2])
    if (len(text) + 1) * (longest + 1) > LONGEST * 10:
        raise Unfoldable
    return text.replace(*arguments)


def _check_codec(arguments: list[Any], allowed: set[str]) -> None:
    if arguments and str(arguments[0]).lower() not in allowed:
        raise Unfoldable


def _decoded(data: Any, codec: Any = "utf-8") -> Any:
    _check_codec([codec], _NAMED_CODECS)
    return codecs.decode(data, str(codec))


def _encoded(data: Any, codec: Any = "utf-8") -> Any:
    _check_codec([codec], _NAMED_CODECS)
    return codecs.encode(data, str(codec))


def _bytes(source: Any = b"", *codec: Any) -> Any:
    if isinstance(source, int):
        raise Unfoldable
    _check_codec(list(codec), _TEXT_CODECS)
    return bytes(source, *codec)


def _text(source: Any = "", *codec: Any) -> Any:
    _check_codec(list(codec), _TEXT_CODECS)
    return str(source, *codec) if codec else str(source)


def _reversed(items: Any) -> Any:
    return list(items)[::-1]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "builtins.chr": chr,
    "builtins.ord": ord,
    "builtins.int": int,
    "builtins.str": _text,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytes,
    "builtins.list": list,
    "builtins.tuple": list,
    "builtins.sorted": sorted,
    "builtins.reversed": _reversed,
    "builtins.iter": list,
    "builtins.next": operator.itemgetter(0),
    "builtins.max": max,
    "builtins.min": min,
    "builtins.bytes.fromhex": bytes.fromhex,
    "builtins.bytearray.fromhex": bytes.fromhex,
    "base64.b64decode": base64.b64decode,
    "base64.urlsafe_b64decode": base64.urlsafe_b64decode,
    "base64.b32decode": base64.b32decode,
    "base64.b16decode": base64.b16decode,
    "base64.b85decode": base64.b85decode,
    "base64.a85decode": base64.a85decode,
    "binascii.unhexlify": binascii.unhexlify,
    "binascii.a2b_hex": binascii.a2b_hex,
    "binascii.a2b_base64": binascii.a2b_base64,
    "codecs.decode": _decoded,
    "codecs.encode": _encoded,
    "operator.concat": operator.add,
    "operator.add": operator.add,
    "sys.intern": _text,
}
"""Functions whose result is computed when all of their arguments are constants."""


def call(path: str, arguments: Sequence[Value]) -> Value:
    """The result of a call of the named function with constant arguments, None when it is not known."""
    function = FUNCTIONS.get(path)
    if function is None or not arguments:
        return None
    try:
        return lift(function(*(plain(argument) for argument in arguments)))
    except Exception:  # noqa: BLE001  (as in `binary`)
        return None


def subscript(owner: Value, index: Any) -> Value:
    """An element or slice of a constant or a list, None when it is not known."""
    try:
        if type(owner) is Items:
            found = owner.values[index]
            return items(found) if isinstance(index, slice) else found
        return lift(plain(owner)[index])
    except Exception:  # noqa: BLE001  (as in `binary`)
        return None
