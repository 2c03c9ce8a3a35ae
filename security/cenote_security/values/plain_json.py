"""Values as JSON: plain data, and nothing that would come back as something else."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Final
from uuid import UUID

from cenote_proto.scalars import utf8_text
from cenote_security.errors import UsageError

_LISTS: Final = (list, tuple, deque)
_DICTIONARIES: Final = (dict, OrderedDict, Counter, defaultdict)
_DATES: Final = (date, datetime, time)

MAX_DEPTH: Final = 100

MAX_BITS: Final = 10_000
"""Of a whole number: Python writes out no more than 4,300 digits."""


class NotPlainError(UsageError):
    """A value that is no plain data. Where it is not, and what to write instead."""


def as_json(value: object, what: str) -> str:
    """The value as RFC 8259 has it. what: its name in messages. Raises NotPlainError.

    What JSON writes in one way only is written: tuples, named ones too, arrays and deques as lists, kinds of
    dictionaries, dataclasses and pydantic models as objects, members of an Enum as their values, numbers of numpy,
    dates and times as in ISO 8601, UUIDs, and keys as `json.dumps` writes them. Sets are refused: they have no order.
    """
    plain = _plain(value, what, 0)
    return utf8_text(json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def from_json(text: str) -> Any:
    """What RFC 8259 says that a text means. Raises ValueError, for NaN and infinities too, and RecursionError."""
    return _DECODER.decode(text)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no value of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _plain(value: object, place: str, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise NotPlainError(f"{place[:200]} is more than {MAX_DEPTH} levels deep")
    value = _scalar(value)
    kind = type(value)
    if kind in _LISTS or _is_array(value) or _is_named_tuple(kind):
        assert isinstance(value, Iterable)
        return [_plain(item, f"{place[:200]}[{n}]", depth + 1) for n, item in enumerate(value)]
    if kind in _DICTIONARIES:
        assert isinstance(value, dict)
        return _object(value, place, depth)
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise NotPlainError(f"{place} is {value!r}, which JSON does not have; use None")
    elif kind is int:
        assert isinstance(value, int)
        if value.bit_length() > MAX_BITS:
            raise NotPlainError(f"{place} is a number of {value.bit_length()} bits, of up to {MAX_BITS}")
    elif kind not in (str, bool, type(None)):
        if (fields := _fields(value)) is not None:
            return _object(fields, place, depth)
        raise _not_plain(place, kind)
    return value


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(kind.__dict__.get("_fields"), tuple)


def _fields(value: object) -> dict[object, object] | None:
    """Of a dataclass or a pydantic model, by name; None for anything else."""
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    declared = getattr(kind, "__pydantic_fields__", None)
    if isinstance(declared, dict):
        return {name: getattr(value, name) for name in declared}
    return None


def _object(value: dict[object, object], place: str, depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, item in value.items():
        text = _key(key, place)
        if text in found:
            raise NotPlainError(f"two keys of {place} are {text!r:.100} as texts; make them differ")
        found[text] = _plain(item, f"{place[:200]}[{key!r:.50}]", depth + 1)
    return found


def _key(key: object, place: str) -> str:
    plain = _scalar(key)
    if type(plain) is str:
        return plain
    if type(plain) not in (int, bool, type(None)):
        raise NotPlainError(
            f"a key of {place} is a {type(key).__name__}; use texts as keys, such as str(key) for each"
        )
    return json.dumps(plain)


def _scalar(value: object) -> object:
    """What numpy and pandas give for a sum, a mean or a day, as Python's own number or text; of an Enum its value."""
    if isinstance(value, Enum):
        value = value.value
    kind = type(value)
    home = kind.__module__
    if kind in _DATES or (kind.__qualname__ == "Timestamp" and home.partition(".")[0] == "pandas"):
        return value.isoformat()  # type: ignore[attr-defined]
    if kind is UUID:
        return str(value)
    if home != "numpy" or getattr(value, "shape", None) != ():
        return value
    if kind.__name__ == "datetime64" and str(value) != "NaT":
        return str(value)
    # Those of nanoseconds would be plain numbers, and say no longer what they count.
    return value if kind.__name__ in ("datetime64", "timedelta64") else value.item()  # type: ignore[attr-defined]


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _not_plain(place: str, kind: type) -> NotPlainError:
    fix = _FIXES.get(kind.__name__, "")
    if not fix and kind.__module__ != "builtins":
        fix = "take what is needed out of it, such as list(...), dict(...) or str(...)"
    return NotPlainError(
        f"{place} is a {kind.__qualname__[:200]}, and JSON takes plain data: lists, dictionaries, texts, numbers, "
        f"dates, dataclasses, Enums, True, False and None{fix and '; '}{fix}"
    )


_FIXES: Final = {
    "set": "use sorted(...)",
    "frozenset": "use sorted(...)",
    "Table": "use .to_pylist()",
    "DataFrame": "use .to_dict('records')",
    "Series": "use .to_dict() or .tolist()",
    "Index": "use .tolist()",
    "Categorical": "use .tolist()",
    "bytes": "use .decode(), or base64",
    "bytearray": "use .decode(), or base64",
    "complex": "use [z.real, z.imag]",
    "Decimal": "use float(...) or str(...)",
    "Fraction": "use float(...) or str(...)",
    "timedelta": "use .total_seconds()",
    "Timedelta": "use .total_seconds()",
    "timedelta64": "use .item().total_seconds()",
    "datetime64": "use None for what is no time",
    "NaTType": "use None",
    "NAType": "use None",
    "range": "use list(...)",
    "generator": "use list(...)",
    "dict_keys": "use list(...)",
    "dict_values": "use list(...)",
    "dict_items": "use dict(...) or list(...)",
    "map": "use list(...)",
    "zip": "use list(...)",
    "filter": "use list(...)",
    "PosixPath": "use str(...)",
    "Period": "use str(...)",
}
"""What to write instead, by the name of a class."""
