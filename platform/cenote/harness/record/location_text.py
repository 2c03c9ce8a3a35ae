"""Locations, names and paths as text in sentences.

A jail chooses its names, and models, people and log lines read these sentences: names are made printable, and cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from cenote_security.printable import printable
from cenote_worker.execution.trace import DATABASES, LIBRARIES, RESULTS, Location, is_inside, key_of, kind_of

MAX_SPOKEN: Final = 200
"""Characters of one name or path."""

MAX_LISTED: Final = 20


def shown(name: str) -> str:
    """The text on one line, cut to a readable length."""
    return printable(name if len(name) <= MAX_SPOKEN else f"{name[: MAX_SPOKEN - 1]}…")


def listed(texts: Collection[str]) -> str:
    """`a, b and 7 more`. texts: such as `shown` gives."""
    first = ", ".join(islice(texts, MAX_LISTED))
    return f"{first} and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else first


def named(names: Iterable[str]) -> str:
    """The same of names and paths as jails give them."""
    return listed([shown(name) for name in names])


def spoken(location: Location) -> str:
    """A location in a sentence."""
    key = shown(key_of(location))
    match kind_of(location):
        case "name":
            return f"`{key}`"
        case "file":
            return f"the file `{key}`"
        case "hidden":
            return f"the state of {key}"
        case "import":
            return f"whether `{key}` is imported"
        case "module" if location == LIBRARIES:
            return "what was set in libraries"
        case "module" if location in (DATABASES, RESULTS):
            return "what DuckDB has"
        case "module" if is_inside(location):
            return f"what the library `{key.removesuffix('.*')}` keeps for itself"
        case "module":
            return f"attributes of the module `{key}`"
    return "anything"
