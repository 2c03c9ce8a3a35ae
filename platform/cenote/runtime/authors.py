"""Who works in a runtime, and with whose names."""

from __future__ import annotations

from typing import Literal

from cenote_security.errors import UsageError

Scope = Literal["shared", "private"]
"""An author works with the names of all, or with their own; then those of all are attributes of `shared`."""


def check_scope(scope: object) -> None:
    """Raises UsageError."""
    if scope not in ("shared", "private"):
        raise UsageError(f'a scope is "shared" or "private", not {scope!r:.100}')
