"""Of two processes that work on the same, which there may be for a moment, the later one alone writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cenote.gateway.database import Database
from cenote.gateway.orchestrators.works import Kind, SupersededError

_BEGIN: Final[dict[Kind, str]] = {
    "team": "UPDATE teams SET epoch = epoch + 1 WHERE id = ? RETURNING epoch",
    "job": "UPDATE jobs SET epoch = epoch + 1 WHERE id = ? RETURNING epoch",
}
_STAY: Final[dict[Kind, str]] = {
    "team": "UPDATE teams SET epoch = epoch WHERE id = ? AND epoch = ?",
    "job": "UPDATE jobs SET epoch = epoch WHERE id = ? AND epoch = ?",
}


class Fence:
    """Around the writes of one process. Making one shuts its predecessors out."""

    def __init__(self, database: Database, kind: Kind, work: str) -> None:
        """Raises SupersededError for a work that is not there any more."""
        self._database = database
        self._kind = kind
        self._work = work
        with database.transaction():
            row = database.row(_BEGIN[kind], work)
        if row is None:
            raise SupersededError
        self._epoch = int(row["epoch"])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All of it, or nothing. Raises SupersededError where a later process has begun, or the work is gone."""
        with self._database.transaction():
            if not self._database.execute(_STAY[self._kind], self._work, self._epoch):
                raise SupersededError
            yield
