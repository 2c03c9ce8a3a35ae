"""All that is wrong with one request, said at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cenote_security.errors import RejectedError, UsageError


class Problems:
    """Collects it, so that a refusal says it at once.

    wrong = Problems()
    with wrong.noting():
        check_one_thing()
    wrong.raise_all()
    """

    def __init__(self) -> None:
        self._found: list[UsageError | RejectedError] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def note(self, error: UsageError | RejectedError) -> None:
        self._found += error.several or (error,)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Goes on after the block when something is refused inside."""
        try:
            yield
        except (UsageError, RejectedError) as error:
            self.note(error)

    def raise_all(self) -> None:
        """Raises the only one as it is; of several, a UsageError if one of them is such, else a RejectedError."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise self._found[0]
        listed = "; ".join(f"({number}) {error}" for number, error in enumerate(self._found, 1))
        family = UsageError if any(isinstance(error, UsageError) for error in self._found) else RejectedError
        combined = family(f"{len(self._found)} things are wrong: {listed}")
        combined.several = tuple(self._found)
        raise combined
