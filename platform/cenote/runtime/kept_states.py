"""Kept states, as callers name them."""

from __future__ import annotations

from typing import TypeAlias

from cenote_worker.results import SnapshotInfo

KeptState: TypeAlias = int | str | SnapshotInfo
"""The number of the step that it is the end of, its label, or what `snapshot` and `snapshots` tell of it."""


def key_of(state: KeptState) -> int | str:
    """What a runtime finds it by. A label may have gone to a later state since: what was told of one is its step."""
    return state.step if isinstance(state, SnapshotInfo) else state
