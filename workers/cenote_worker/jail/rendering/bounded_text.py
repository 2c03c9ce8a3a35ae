"""Text of untrusted objects: bounded and printable, whatever their special methods do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from cenote_proto.scalars import utf8_text
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MAX_DEPTH = 20
"""Nesting at which a container is cut to `...`: deeper text is of no use, and recursion must end somewhere."""

_HUGE_INT_BITS = 13_000
"""An int of more bits than this has more digits than `str` converts by default (4,300)."""

_class_name = type.__dict__["__name__"].__get__
_class_module = type.__dict__["__module__"].__get__
_class_mro = type.__dict__["__mro__"].__get__


def type_name(cls: type) -> str:
    """The real name of a class, not the one that its metaclass reports."""
    name: str = _class_name(cls)
    return name if len(name) <= 100 else name[:100] + "..."


def module_name(cls: type) -> str:
    """The module that a class names as its own; empty when that is not a string."""
    try:
        name = _class_module(cls)
    except AttributeError:
        return ""
    return str.__str__(name) if isinstance(name, str) and len(name) <= 200 else ""


def bases(cls: type) -> tuple[type, ...]:
    """The real method resolution order of a class, without asking its metaclass."""
    order: tuple[type, ...] = _class_mro(cls)
    return order


def shorten(text: str, limit: int) -> str:
    """At most about `limit` characters: the head and the tail, with a count of what is left out between."""
    text = str.__str__(text)
    if len(text) <= limit:
        return utf8_text(text)
    tail = limit // 4
    head = limit - tail
    return utf8_text(f"{text[:head]}... [{len(text) - limit} characters] ...{text[len(text) - tail :]}")


def bounded_str(obj: object, limit: int) -> str:
    """`str(obj)`, shortened; `<unprintable Foo: ValueError>` when `str` fails."""
    return _guarded(str, obj, limit)


def bounded_repr(obj: object, limit: int = 20_000) -> str:
    """`repr(obj)` of at most about `limit` characters.

    Equal to the builtin repr for built-in values that fit. Long containers keep their head and say how many items
    follow. An object's own `__repr__` is called, and its result shortened.
    """
    if limit <= 0:
        return "..."
    return _Writer(limit).write(obj)


def _guarded(convert: Callable[[object], str], obj: object, limit: int) -> str:
    try:
        return shorten(convert(obj), limit)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit from a __repr__ is a failed repr, not an exit
        return f"<unprintable {type_name(type(obj))}: {type_name(type(error))}>"


class _Writer:
    """One rendering: a character budget that each piece is taken from, and the containers that are open."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._open: set[int] = set()

    def write(self, obj: object) -> str:
        container = _CONTAINERS.get(type(obj))
        return self._plain(obj) if container is None else self._nested(container, obj)

    def _plain(self, obj: object) -> str:
        limit = max(self._left, 20)
        if type(obj) is str or type(obj) is bytes or type(obj) is bytearray:
            text = _long_repr(obj, limit)
        elif type(obj) is int and obj.bit_length() > _HUGE_INT_BITS:
            text = f"<int of {obj.bit_length()} bits>"
        else:
            text = _guarded(repr, obj, limit)
        self._left -= len(text)
        return text

    def _nested(self, container: Callable[[_Writer, object], str], obj: object) -> str:
        if id(obj) in self._open or len(self._open) >= MAX_DEPTH:
            return _CYCLES.get(type(obj), "...")
        self._open.add(id(obj))
        try:
            return container(self, obj)
        finally:
            self._open.discard(id(obj))

    def items(self, values: Iterable[object], count: int, write: Callable[[object], str]) -> list[str]:
        """Items until the budget is spent, then how many more there are."""
        parts: list[str] = []
        try:
            for value in values:
                if self._left <= 0:
                    parts.append(f"... {count - len(parts):,} more")
                    break
                parts.append(write(value))
                self._left -= 2
        except RuntimeError:  # another thread changed the container's size
            parts.append("...")
        return parts

    def pair(self, item: tuple[object, object]) -> str:
        return f"{self.write(item[0])}: {self.write(item[1])}"


def _long_repr(text: str | bytes | bytearray, limit: int) -> str:
    """Repr of the two ends only: escaping a gigabyte to show a page of it would take seconds."""
    if len(text) <= limit:
        return shorten(repr(text), limit)
    half = limit // 2
    left_out = len(text) - 2 * half
    return utf8_text(f"{text[:half]!r}... [{left_out:,} left out] ...{text[-half:]!r}")


def _sequence(opening: str, closing: str) -> Callable[[_Writer, object], str]:
    def write(writer: _Writer, obj: object) -> str:
        assert isinstance(obj, (list, tuple, set, frozenset, deque))
        return f"{opening}{', '.join(writer.items(obj, len(obj), writer.write))}{closing}"

    return write


def _tuple(writer: _Writer, obj: object) -> str:
    assert isinstance(obj, tuple)
    inner = ", ".join(writer.items(obj, len(obj), writer.write))
    return f"({inner},)" if len(obj) == 1 else f"({inner})"


def _set(writer: _Writer, obj: object) -> str:
    return _sequence("{", "}")(writer, obj) if obj else "set()"


def _frozenset(writer: _Writer, obj: object) -> str:
    return _sequence("frozenset({", "})")(writer, obj) if obj else "frozenset()"


def _dict(writer: _Writer, obj: object) -> str:
    assert isinstance(obj, dict)
    items: Mapping[object, object] = obj
    return "{" + ", ".join(writer.items(items.items(), len(items), writer.pair)) + "}"  # type: ignore[arg-type]


_CONTAINERS: dict[type, Callable[[_Writer, object], str]] = {
    list: _sequence("[", "]"),
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    dict: _dict,
}
_CYCLES: dict[type, str] = {list: "[...]", dict: "{...}", tuple: "(...)"}
