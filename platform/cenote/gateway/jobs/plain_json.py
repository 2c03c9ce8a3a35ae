"""Results as JSON: plain data, and nothing that would come back as something else."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from datetime import date, datetime, time
from typing import Final
from uuid import UUID

from cenote_proto.scalars import utf8_text
from cenote_security.errors import UsageError

MAX_VALUE: Final = 256 * 2**10
"""Characters of a task's result as JSON; larger ones belong into files or shared values."""

_LISTS: Final = (list, tuple, deque)
_DICTIONARIES: Final = (dict, OrderedDict, Counter, defaultdict)
_DATES: Final = (date, datetime, time)

MAX_DEPTH: Final = 100

MAX_BITS: Final = 10_000
"""Of a whole number: Python writes out no more than 4,300 digits."""


class NotPlainError(UsageError):
    """A result that is no plain data. Where it is not, and why."""


def as_json(value: object) -> str:
    """Raises NotPlainError.

    What JSON writes in one way only is written: tuples, arrays and deques as lists, kinds of dictionaries, numbers of
    numpy, dates and times as in ISO 8601, UUIDs, and keys as `json.dumps` writes them. Sets are refused: they have no
    order.
    """
    plain = _plain(value, "the result", 0)
    text = utf8_text(json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    if len(text) > MAX_VALUE:
        raise NotPlainError(f"the result has {len(text)} characters as JSON, of up to {MAX_VALUE}")
    return text


def _plain(value: object, place: str, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise NotPlainError(f"the result is more than {MAX_DEPTH} levels deep")
    value = _scalar(value)
    kind = type(value)
    if kind in _LISTS or _is_array(value):
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
        raise not_plain(place, kind.__qualname__)
    return value


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
    """What numpy and pandas give for a sum, a mean or a day, as Python's own number or text."""
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


def not_plain(place: str, kind: str) -> NotPlainError:
    fix = _FIXES.get(kind.rpartition(".")[2], "")
    if not fix and "." in kind:
        fix = "take what is needed out of it, such as dataclasses.asdict(...), list(...) or its .value"
    return NotPlainError(
        f"{place} is a {kind[:200]}, and a result is plain data: lists, dictionaries, texts, numbers, dates, True, "
        f"False and None{fix and '; '}{fix}"
    )


_FIXES: Final = {
    "set": "use sorted(...)",
    "frozenset": "use sorted(...)",
    "DataFrame": "use .to_dict('records')",
    "Series": "use .to_dict() or .tolist()",
    "Index": "use .tolist()",
    "Categorical": "use .tolist()",
    "bytes": "use .decode(), or base64",
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
    "PosixPath": "use str(...)",
    "Period": "use str(...)",
}
"""What to write instead, by the name of a class."""
