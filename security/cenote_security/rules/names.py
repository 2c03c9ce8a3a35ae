"""Lists of names, as users give them to rules."""

from __future__ import annotations

from collections.abc import Iterable

from cenote_security.errors import UsageError


def names_of(given: Iterable[str], example: str) -> frozenset[str]:
    """The names; a single one may stand without a list. Raises UsageError, with the example, for what is no name.

    A rule that took anything else would match nothing, and nobody would notice.
    """
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"a rule takes names, such as {example}, not {name!r:.100}")
    return frozenset(names)
