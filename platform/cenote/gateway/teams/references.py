"""The values of a team, by the ids that the platform knows them by: a later process finds them again."""

from __future__ import annotations

from typing import Final

from cenote.runtime import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.platform_client import client_of
from cenote_security.errors import UnknownReferenceError, UsageError

PATIENCE: Final = 30.0

KEPT: Final = 3600.0
"""Seconds that what a run made is kept for whoever set the team to work."""


class TeamReferences:
    """See ReferenceStore. holder: the same in each process that works on the team."""

    def __init__(self, destination: Destination, holder: str) -> None:
        self._references = client_of(destination).references
        self._holder = holder

    def keep(self, reference: ObjectReference) -> str:
        holding = reference.holding
        if holding.place != self._references.place:
            raise UsageError("a team of a platform works with values of that platform")
        return str(holding.id)

    def find(self, reference_id: str) -> ObjectReference | None:
        found = self._references.find(reference_id, self._holder)
        try:
            holding, info = background().wait(found, PATIENCE, "find a value")
        except UnknownReferenceError:
            return None
        return ObjectReference(holding, info)

    def leave(self, reference_id: str) -> None:
        """Keeps a value for a while when nobody works on the team any more."""
        kept = self._references.leave(reference_id, f"{self._holder}, done", KEPT)
        background().wait(kept, PATIENCE, "keep a value")
