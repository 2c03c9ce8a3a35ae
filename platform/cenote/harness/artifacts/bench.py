"""What artifacts need of a runtime, besides a ground for patches."""

from __future__ import annotations

from typing import Protocol

from cenote_worker.history.events import SuiteOutcome


class Bench(Protocol):
    """Of one runtime."""

    def note(self, outcome: SuiteOutcome) -> None:
        """Notes what came of a suite."""

    def beside(self, code: str, name: str) -> object:
        """Runs code on the live state, and takes back all that it has done there: variables, files, the head.

        Gives what a variable had then, as plain data. The code may not change anything outside.
        Raises StateNotKeptError, and runs nothing, where the state could not be had back; UnavailableError for code
        that did not come to its end.
        """
