"""Checkpoints of one runtime, wherever it is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cenote_worker.checkpoints.store import CheckpointInfo


class CheckpointLine(Protocol):
    """What `cenote_worker.hosted.checkpoints.Checkpoints` is to a runtime's holder."""

    def make(self, label: str = "") -> CheckpointInfo:
        """Stores the state. Raises UsageError where nothing is ever stored, CheckpointError."""

    def hibernate(self, *, partial: bool) -> CheckpointInfo:
        """Stores the state and ends the jail. Raises IncompleteRestoreError too; then the jail goes on."""

    def go_back(self, checkpoint: int | str) -> CheckpointInfo:
        """Goes on from an earlier one. Raises UnknownEntryError too, UnavailableError while a call is under way."""


@runtime_checkable
class StoresElsewhere(Protocol):
    """A Backend whose states are stored by whoever hosts it."""

    @property
    def checkpoints(self) -> CheckpointLine: ...
