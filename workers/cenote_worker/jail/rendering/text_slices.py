"""Extracts of a value as text: its beginning, a range of it, the places where a text occurs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from cenote_worker.jail.rendering.bounded_text import bases, bounded_repr, module_name, shorten
from cenote_worker.jail.rendering.show import render
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

PREVIEW_ROWS = 6
_CONTEXT = 80
"""Characters shown on either side of a match."""

_STEP = 4_096
"""Parts of a value that are searched at once."""

Slicer = Callable[[int, int], Any]


def preview(value: object) -> str:
    """The beginning and the end of a value; equal values give equal text."""
    return render(value, rows=PREVIEW_ROWS)


def piece(value: object, start: int, stop: int) -> str:
    """The parts of a value from `start` to before `stop`: characters, items, rows, entries; counted as in slices."""
    unit, count, part = _parts(value)
    start, stop, _ = slice(start, stop).indices(count)
    stop = max(start, stop)
    shown = part(start, stop)
    text = shown if isinstance(shown, str) else render(shown, rows=max(stop - start, 1))
    return f"{unit} {start}:{stop} of {count}\n{text}"


def occurrences(value: object, text: str, most: int) -> str:
    """The first parts of a value that contain `text`, a line each with their position."""
    unit, count, part = _parts(value)
    found = _found_in_text(part(0, count), text) if unit == "characters" else _found(part, count, text)
    lines = [f"{position}: {line}" for position, line in islice(found, most)]
    more = ["... more were not looked for"] if len(lines) == most and next(found, None) is not None else []
    return "\n".join([*lines, *more]) or f"not in any of {count} {unit}"


def _parts(value: object) -> tuple[str, int, Slicer]:
    """The name of a value's parts, their number, and a function that gives some of them."""
    library = module_name(type(value)).partition(".")[0]
    if library == "pandas" and hasattr(value, "iloc"):
        rows: Any = value
        return "rows", len(rows), lambda start, stop: rows.iloc[start:stop]
    if library in ("polars", "pyarrow") and hasattr(value, "slice"):
        table: Any = value
        return "rows", len(table), lambda start, stop: table.slice(start, stop - start)
    if library == "numpy" and getattr(value, "ndim", 0) > 0:
        array: Any = value
        return "rows", len(array), lambda start, stop: array[start:stop]
    return _plain_parts(value)


def _plain_parts(value: object) -> tuple[str, int, Slicer]:
    lines = bases(type(value))
    if isinstance(value, Mapping):
        return "entries", len(value), lambda start, stop: dict(islice(value.items(), start, stop))
    if isinstance(value, set | frozenset | deque):
        return "items", len(value), lambda start, stop: list(islice(value, start, stop))
    if isinstance(value, Sequence) and str not in lines and not isinstance(value, bytes | bytearray):
        return "items", len(value), lambda start, stop: value[start:stop]
    text = value if isinstance(value, str) else bounded_repr(value)
    return "characters", len(text), lambda start, stop: text[start:stop]


def _found_in_text(text: str, wanted: str) -> Iterator[tuple[int, str]]:
    position = text.find(wanted)
    while position >= 0:
        yield position, _around(text, position, wanted)
        position = text.find(wanted, position + max(len(wanted), 1))


def _found(part: Slicer, count: int, wanted: str) -> Iterator[tuple[int, str]]:
    for start in range(0, count, _STEP):
        for offset, line in enumerate(_lines(part(start, min(start + _STEP, count)))):
            position = line.find(wanted)
            if position >= 0:
                yield start + offset, _around(line, position, wanted)


def _lines(parts: Any) -> Iterator[str]:
    """Each of some parts as one line."""
    if isinstance(parts, Mapping):
        return (f"{_line(key)}: {_line(item)}" for key, item in parts.items())
    if hasattr(parts, "itertuples"):
        return (" | ".join(map(_line, row)) for row in parts.itertuples(index=False, name=None))
    if hasattr(parts, "iter_rows"):
        return (" | ".join(map(_line, row)) for row in parts.iter_rows())
    if hasattr(parts, "to_pylist"):
        return map(_line, parts.to_pylist())
    return map(_line, parts.tolist() if hasattr(parts, "tolist") else parts)


def _line(item: object) -> str:
    return item if type(item) is str else bounded_repr(item)


def _around(text: str, position: int, wanted: str) -> str:
    start, stop = max(position - _CONTEXT, 0), position + len(wanted) + _CONTEXT
    line = shorten(text[start:stop], 3 * _CONTEXT).replace("\n", " ")
    return f"{'...' if start else ''}{line}{'...' if stop < len(text) else ''}"
