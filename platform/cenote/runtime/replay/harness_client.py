"""What changes the history of a runtime that another process has: patches, builds, runs beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cenote.runtime.replay.fresh_runs import FullRunClient, SliceRunClient
from cenote.runtime.replay.patch_client import BuildClient, PatchClient
from cenote_worker.history.events import ArtifactDeclared


class HarnessClient(PatchClient, BuildClient, SliceRunClient, FullRunClient, Protocol):
    """For its owner."""

    def declare(self, units: Sequence[ArtifactDeclared]) -> None:
        """Notes them in the history. May block. Raises UsageError where they do not hold together."""
