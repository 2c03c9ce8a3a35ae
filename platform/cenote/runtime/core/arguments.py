"""Arguments that both faces take: whose names a caller works with, and which kept state is meant."""

from __future__ import annotations

from typing import Literal, TypeAlias

from cenote_security.errors import UsageError
from cenote_worker.execution.results import SnapshotInfo

Scope = Literal["shared", "private"]
"""An author works with the names of all, or with their own; then those of all are attributes of `shared`."""


def check_scope(scope: object) -> None:
    """Raises UsageError."""
    if scope not in ("shared", "private"):
        raise UsageError(f'a scope is "shared" or "private", not {scope!r:.100}')


KeptState: TypeAlias = int | str | SnapshotInfo
"""The number of the step that it is the end of, its label, or what `snapshot` and `snapshots` tell of it."""


def key_of(state: KeptState) -> int | str:
    """What a runtime finds it by. A label may have gone to a later state since: what was told of one is its step."""
    return state.step if isinstance(state, SnapshotInfo) else state
