"""Who works in a runtime, and with whose names."""

from __future__ import annotations

from typing import Literal

from cenote_security.errors import UsageError

Scope = Literal["shared", "private"]
"""An author works with the names of all, or with their own; then those of all are attributes of `shared`."""

MAX_AUTHOR = 100
"""Characters. Authors are named in results, in notices and in packets of a fixed size."""


def check_author(author: object) -> None:
    """Raises UsageError unless the name can stand in a sentence."""
    if not isinstance(author, str) or not author.strip() or not author.isprintable():
        raise UsageError(f"an author is a printable text that is not empty, not {author!r:.100}")
    if len(author) > MAX_AUTHOR:
        raise UsageError(f"the name of an author has at most {MAX_AUTHOR} characters, not {len(author)}")


def check_scope(scope: object) -> None:
    """Raises UsageError."""
    if scope not in ("shared", "private"):
        raise UsageError(f'a scope is "shared" or "private", not {scope!r:.100}')
