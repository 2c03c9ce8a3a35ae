"""The names most like a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MOST_CANDIDATES = 3_000
_LONGEST = 80
_MOST_FOUND = 3

_close_matches = difflib.get_close_matches


def nearest(name: str, candidates: Iterable[str]) -> list[str]:
    """At most three candidates, the likeliest first: differing in case only, then by similarity."""
    name = name[:_LONGEST]
    known = [word for word in islice(candidates, _MOST_CANDIDATES) if 0 < len(word) <= _LONGEST]
    lower = name.lower()
    found = [word for word in known if word.lower() == lower and word != name]
    found += _close_matches(name, known, n=_MOST_FOUND, cutoff=0.66)
    found += [word for word in known if len(lower) > 2 and _contains(word.lower(), lower)]
    return [word for word in dict.fromkeys(found) if word != name][:_MOST_FOUND]


def _contains(word: str, name: str) -> bool:
    """Whether one is a whole part of the other: `price` of `unit_price`, and the other way round."""
    return name in word.split("_") or word in name.split("_")
