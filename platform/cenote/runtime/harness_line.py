"""The way to the history of a runtime that another process has: all that is asked of whoever has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cenote.runtime.builds_elsewhere import BuildLine
from cenote.runtime.full_runs import FullRunLine
from cenote.runtime.patches_elsewhere import PatchLine
from cenote.runtime.stage import StageLine
from cenote_worker.history.events import Declared


class HarnessLine(PatchLine, BuildLine, StageLine, FullRunLine, Protocol):
    """For its owner."""

    def declare(self, units: Sequence[Declared]) -> None:
        """Notes them in the history. May block. Raises UsageError where they do not hold together."""
