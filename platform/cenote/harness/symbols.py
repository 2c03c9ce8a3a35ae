"""What people call something, and the location that it is."""

from __future__ import annotations

from cenote_security.errors import UsageError
from cenote_worker.trace import KINDS, Location, name


def location_of(symbol: str) -> Location:
    """A variable's name, `author/name` in a private namespace; or a location, such as `file:data.csv`.

    Raises UsageError for what is no text.
    """
    if not isinstance(symbol, str):
        raise UsageError(
            f"a symbol is the name of a variable, or such as `file:data.csv`, not {type(symbol).__name__}"
        )
    return Location(symbol) if symbol.startswith(KINDS) else name(symbol)


def symbol_of(location: Location) -> str:
    """The name of a variable; anything else as it is."""
    return location.removeprefix("name:")
