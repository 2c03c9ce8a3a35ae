"""Names of authors, as clients give them and servers check them."""

from __future__ import annotations

from cenote_security.errors import UsageError

MAX_AUTHOR = 100
"""Characters. Authors are named in results, in notices and in packets of a fixed size."""


def check_author(author: object) -> None:
    """Raises UsageError unless the name can stand in a sentence."""
    if not isinstance(author, str) or not author.strip() or not author.isprintable():
        raise UsageError(f"an author is a printable text that is not empty, not {author!r:.100}")
    if len(author) > MAX_AUTHOR:
        raise UsageError(f"the name of an author has at most {MAX_AUTHOR} characters, not {len(author)}")
