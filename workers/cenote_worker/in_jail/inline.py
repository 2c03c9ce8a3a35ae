"""Values on one line, as compact as they can be read back: no rounding, quotes only where they tell something."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from itertools import islice

from cenote_worker.in_jail.bounded import bases, bounded_repr, bounded_str, module_name, shorten, type_name
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

STRING_CHARS = 600
"""A longer string loses its middle. Ids, names and sentences are far below this."""

_MOST_ITEMS = 50
_MOST_DEPTH = 6
_NUMBER_LIKE = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|NaN|inf|None|True|False")
_NEEDS_QUOTES = re.compile(r"[|\n\r\t{}\[\]]|^\s|\s$|^$|, |: ")
_TEXTUAL = ("datetime", "decimal", "uuid", "pathlib", "fractions", "pandas", "numpy")
_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__


def one_line(value: object, *, number_like_strings: bool = False, depth: int = 0) -> str:
    """A value in one line.

    number_like_strings: whether strings such as `"007"` go without quotes, because the reader has been told that
    they are strings.
    """
    if isinstance(value, str):
        return _string(value, number_like_strings)
    if isinstance(value, enum.Enum):
        return f"{type_name(type(value))}.{_get(value, '_name_')}"
    if depth >= _MOST_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return f"{{{_pairs(value, ': ', depth)}}}"
    if isinstance(value, (list, tuple, set, frozenset)) and not is_named_tuple(value):
        return _items(value, depth)
    record = as_record(value)
    if record is not None:
        return f"{type_name(type(value))}({_pairs(filled(record), '=', depth)})"
    return scalar(value)


def scalar(value: object) -> str:
    """Numbers in full; dates, decimals and the like as they print, others by their repr."""
    if module_name(type(value)).partition(".")[0] in _TEXTUAL:
        return shorten(bounded_str(value, STRING_CHARS).replace("\n", " "), STRING_CHARS)
    return bounded_repr(value, STRING_CHARS)


def looks_like_number(text: str) -> bool:
    return _NUMBER_LIKE.fullmatch(text) is not None


def as_record(value: object) -> dict[str, object] | None:
    """The fields of a dataclass, pydantic model, named tuple or plain object; None for anything else."""
    if isinstance(value, type):
        return None
    if is_named_tuple(value):
        return dict(zip(type(value)._fields, value, strict=False))  # type: ignore[attr-defined, call-overload]
    for cls in bases(type(value)):
        fields = _class_dict(cls).get("__dataclass_fields__") or _class_dict(cls).get("__pydantic_fields__")
        if isinstance(fields, dict):
            return {name: getattr(value, name) for name in fields if hasattr(value, name)}
    return _attributes(value)


def filled(record: dict[str, object]) -> dict[str, object]:
    """A record without its fields that hold nothing: its class says which there are."""
    return {name: item for name, item in record.items() if not _is_empty(item)}


def _is_empty(value: object) -> bool:
    return value is None or (type(value) in (str, list, tuple, dict, set, frozenset) and not value)


def is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and type(getattr(type(value), "_fields", None)) is tuple


def _attributes(value: object) -> dict[str, object] | None:
    """The public attributes of an instance whose class leaves its repr to `object`: it has nothing better."""
    if type(value).__repr__ is not object.__repr__:
        return None
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict:
        return None
    public = {name: item for name, item in attributes.items() if type(name) is str and name[:1] != "_"}
    return public or None


def _string(value: str, number_like: bool) -> str:
    text = shorten(value, STRING_CHARS)
    ambiguous = not number_like and looks_like_number(text)
    return repr(text) if ambiguous or _NEEDS_QUOTES.search(text) else text


def _pairs(record: Mapping[object, object] | dict[str, object], between: str, depth: int) -> str:
    parts = [
        f"{one_line(key, depth=depth + 1)}{between}{one_line(item, depth=depth + 1)}"
        for key, item in islice(record.items(), _MOST_ITEMS)
    ]
    return ", ".join(parts) + _more(len(record))


def _items(values: Iterable[object], depth: int) -> str:
    is_set = isinstance(values, (set, frozenset))
    items = list(values)
    texts = [one_line(item, depth=depth + 1) for item in items[:_MOST_ITEMS]]
    inner = ", ".join(sorted(texts) if is_set else texts) + _more(len(items))
    return f"{{{inner}}}" if is_set else f"[{inner}]"


def _more(count: int) -> str:
    return f", ... {count - _MOST_ITEMS:,} more" if count > _MOST_ITEMS else ""
