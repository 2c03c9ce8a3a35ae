"""Checks of single fields of a header that a jail wrote. Each gives the typed value or MalformedValueError."""

from __future__ import annotations

from typing import NoReturn

from cenote_security.errors import MalformedValueError
from cenote_security.values.node import Foreign, Json, NodeParts

MAX_NAME = 1000
"""Characters of a name: of a class, a field, a zone. Longer ones would be an attack on the code that prints them."""


def malformed(what: str) -> NoReturn:
    raise MalformedValueError(f"not an encoded value: {what}")


def integer(value: Json, low: int, high: int) -> int:
    """An int between two bounds, both inclusive. A bool is not one."""
    if type(value) is not int or not low <= value <= high:
        malformed(f"expected an integer from {low} to {high}")
    return value


def number(value: Json) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    malformed("expected a number")


def flag(value: Json) -> bool:
    if type(value) is not bool:
        malformed("expected true or false")
    return value


def text(value: Json, longest: int = MAX_NAME) -> str:
    if type(value) is not str or len(value) > longest:
        malformed(f"expected text of at most {longest} characters")
    return value


def choice(value: Json, options: tuple[str, ...]) -> str:
    if type(value) is not str or value not in options:
        malformed(f"expected one of {', '.join(options)}")
    return value


def items(value: Json, count: int | None = None) -> list[Json]:
    if type(value) is not list or (count is not None and len(value) != count):
        malformed("expected a list" if count is None else f"expected a list of {count}")
    return value


def names(value: Json) -> list[str]:
    """Distinct names."""
    found = [text(name) for name in items(value)]
    if len(set(found)) != len(found):
        malformed("a name is repeated")
    return found


def children(parts: NodeParts, count: int) -> list[Foreign]:
    """The children in the first run, when there are `count` of them."""
    found: list[Foreign] = parts.runs[0]
    return found if len(found) == count else malformed(f"expected {count} children")


def distinct(children: list[Foreign], most: int) -> list[Foreign]:
    """The children, if each is another object and there are not too many.

    A reference takes four bytes; what is made of it once more, a column or a chunk, takes a thousand and more.
    """
    if len(children) > most or len(set(map(id, children))) != len(children):
        malformed(f"expected at most {most} different parts")
    return children
