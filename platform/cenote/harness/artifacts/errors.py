"""What can be wrong with artifacts. Nothing ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cenote_security.errors import UsageError
from cenote_worker.in_jail.nearest import nearest


class UnknownArtifactError(UsageError):
    """No artifact of that name was declared. nearest: names that were."""

    def __init__(self, name: str, declared: Iterable[str] = ()) -> None:
        self.name = name
        self.nearest = tuple(nearest(name, declared))
        super().__init__(name)

    def __str__(self) -> str:
        hint = f"; the nearest names are {', '.join(self.nearest)}" if self.nearest else ""
        return f"no artifact {self.name!r} was declared{hint}"


class ArtifactCycleError(UsageError):
    """Artifacts would depend on themselves. path: from one back to it."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(tuple(path))
        self.path = tuple(path)

    def __str__(self) -> str:
        return f"artifacts cannot depend on themselves: {' -> '.join(self.path)}"


class UnbuildableError(UsageError):
    """An artifact cannot be brought up to date. reason: why, and what would help."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name} cannot be brought up to date: {self.reason}"
