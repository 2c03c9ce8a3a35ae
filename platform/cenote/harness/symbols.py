"""What people call something, and the location that it is."""

from __future__ import annotations

from typing import Final

from cenote_worker.trace import Location, name

_KINDS: Final = ("name:", "file:", "hidden:", "module:")


def location_of(symbol: str) -> Location:
    """A variable's name, `author/name` in a private namespace; or a location, such as `file:data.csv`."""
    return Location(symbol) if symbol.startswith(_KINDS) else name(symbol)


def symbol_of(location: Location) -> str:
    """The name of a variable; anything else as it is."""
    return location.removeprefix("name:")
