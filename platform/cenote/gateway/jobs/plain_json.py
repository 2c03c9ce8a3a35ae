"""Results as JSON: plain data, and nothing that would come back as something else."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict
from typing import Final

from cenote_proto.scalars import utf8_text
from cenote_security.errors import UsageError

MAX_VALUE: Final = 256 * 2**10
"""Characters of a task's result as JSON; larger ones belong into files or shared values."""

_DICTIONARIES: Final = (dict, OrderedDict, Counter, defaultdict)

MAX_DEPTH: Final = 100

MAX_BITS: Final = 10_000
"""Of a whole number: Python writes out no more than 4,300 digits."""


class NotPlainError(UsageError):
    """A result that is no plain data. Where it is not, and why."""


def as_json(value: object) -> str:
    """Raises NotPlainError.

    What JSON writes in one way only is written: tuples as lists, kinds of dictionaries, numbers of numpy. Sets are
    refused: they have no order.
    """
    plain = _plain(value, "the result", 0)
    text = utf8_text(json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    if len(text) > MAX_VALUE:
        raise NotPlainError(f"the result has {len(text)} characters as JSON, of up to {MAX_VALUE}")
    return text


def _plain(value: object, place: str, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise NotPlainError(f"the result is more than {MAX_DEPTH} levels deep")
    value = _number(value)
    kind = type(value)
    if kind in (list, tuple):
        assert isinstance(value, list | tuple)
        return [_plain(item, f"{place[:200]}[{n}]", depth + 1) for n, item in enumerate(value)]
    if kind in _DICTIONARIES:
        assert isinstance(value, dict)
        return {
            _key(key, place): _plain(item, f"{place[:200]}[{key!r:.50}]", depth + 1)
            for key, item in value.items()
        }
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise NotPlainError(f"{place} is {value!r}, which JSON does not have")
    elif kind is int:
        assert isinstance(value, int)
        if value.bit_length() > MAX_BITS:
            raise NotPlainError(f"{place} is a number of {value.bit_length()} bits, of up to {MAX_BITS}")
    elif kind not in (str, bool, type(None)):
        raise not_plain(place, kind.__qualname__)
    return value


def _key(key: object, place: str) -> str:
    if type(key) is not str:
        raise NotPlainError(f"a key of {place} is no text, but a {type(key).__name__}")
    return key


def _number(value: object) -> object:
    """What pandas and numpy give for a sum or a mean, as Python's own number."""
    item = getattr(value, "item", None) if type(value).__module__ == "numpy" else None
    return item() if item is not None and getattr(value, "shape", None) == () else value


def not_plain(place: str, kind: str) -> NotPlainError:
    return NotPlainError(
        f"{place} is a {kind[:200]}, and a result is plain data: lists, dictionaries with texts as keys, texts, "
        f"numbers, True, False and None"
    )
