"""What was seen along a line, for questions about artifacts: kept for the next one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from cenote.harness.artifacts.declaring import declared
from cenote.harness.artifacts.sightings import Sightings
from cenote_worker.history.events import Declared
from cenote_worker.history.history import History
from cenote_worker.history.step import START, StepRecord


class KnownSightings:
    """Of the line that goes on, kept beside its history: who asks for artifacts asks again behind further steps."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by whoever asks. Nobody who adds to the history waits for it."""
        self._of: tuple[Mapping[str, Declared], int] = ({}, START)
        self._seen = Sightings({})

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """See Companion. Another line, as behind a rollback, waits for a question."""
        if history.units and self.lock.acquire(blocking=False):
            try:
                units, known = self._of
                stays = [record for record in records if record.stays]
                if len(records) != 1 or (stays and units is history.units and stays[0].parent == known):
                    self.along(history, stays[-1].number if stays else history.tree.head)
            finally:
                self.lock.release()

    def along(self, history: History, end: int) -> Sightings:
        """Of the line to a step, for what is declared now."""
        units, known = self._of
        if units is not history.units or history.tree.ancestor(known, end) != known:
            known, self._seen = START, Sightings(declared(history.units))
        self._seen.grow(history.tree.between(known, end))
        self._of = history.units, end
        return self._seen
