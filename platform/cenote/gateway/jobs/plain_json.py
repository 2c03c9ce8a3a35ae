"""Results as JSON: plain data, as Python's own types, and nothing that only looks like it."""

from __future__ import annotations

import json
import math
from typing import Final

from cenote_proto.scalars import utf8_text
from cenote_security.errors import UsageError

MAX_VALUE: Final = 256 * 2**10
"""Characters of a task's result as JSON; larger ones belong into files or shared values."""

MAX_DEPTH: Final = 100

MAX_BITS: Final = 10_000
"""Of a whole number: Python writes out no more than 4,300 digits."""


class NotPlainError(UsageError):
    """A result that is no plain data. Where it is not, and why."""


def as_json(value: object) -> str:
    """Raises NotPlainError. Tuples and sets are refused as well: they would come back as something else."""
    _check(value, "the result", 0)
    text = utf8_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    if len(text) > MAX_VALUE:
        raise NotPlainError(f"the result has {len(text)} characters as JSON, of up to {MAX_VALUE}")
    return text


def _check(value: object, place: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise NotPlainError(f"the result is more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if kind is list:
        assert isinstance(value, list)
        for number, item in enumerate(value):
            _check(item, f"{place[:200]}[{number}]", depth + 1)
    elif kind is dict:
        assert isinstance(value, dict)
        for key, item in value.items():
            if type(key) is not str:
                raise NotPlainError(f"a key of {place} is no text, but a {type(key).__name__}")
            _check(item, f"{place[:200]}[{key[:50]!r}]", depth + 1)
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise NotPlainError(f"{place} is {value!r}, which JSON does not have")
    elif kind is int:
        assert isinstance(value, int)
        if value.bit_length() > MAX_BITS:
            raise NotPlainError(f"{place} is a number of {value.bit_length()} bits, of up to {MAX_BITS}")
    elif kind not in (str, bool, type(None)):
        raise not_plain(place, kind.__qualname__)


def not_plain(place: str, kind: str) -> NotPlainError:
    return NotPlainError(
        f"{place} is a {kind[:200]}, and a result is plain data: lists, dictionaries with texts as keys, texts, "
        f"numbers, True, False and None"
    )
