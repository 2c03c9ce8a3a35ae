"""Common part of the tests' replay targets: nothing is stored, and nothing is lent."""

from __future__ import annotations

from collections.abc import Mapping

from cenote_worker.execution.trace import Location, Version


class KeptOnly:
    """A part of a replay target with kept states and no others."""

    def stored(self) -> Mapping[int, int]:
        return {}

    def lent(self) -> frozenset[int]:
        return frozenset()

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def unlike(self, step: int, versions: Mapping[Location, Version]) -> frozenset[Location]:
        raise AssertionError(
            f"the state after step {step} is not stored, to be compared by {len(versions)} versions"
        )
