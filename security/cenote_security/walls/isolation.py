"""Which isolation is in force: what the policy asks for, or the best that was found; never less than asked."""

from __future__ import annotations

from typing import Final

from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation
from cenote_security.walls.facilities import Facilities
from cenote_security.walls.level import LevelName

NEEDS: Final[dict[LevelName, tuple[str, ...]]] = {
    "strict": ("namespaces", "landlock", "seccomp"),
    "landlock": ("landlock", "landlock scopes", "seccomp"),
    "gvisor": ("namespaces", "runsc"),
    "none": (),
}
"""The facilities that each level rests on."""


def resolve_isolation(asked: Isolation, facilities: Facilities) -> LevelName:
    """The level for a policy's `isolation`. `none` only when it is asked for by name.

    Raises IsolationUnavailableError when a facility of the level asked for, or of every level for `auto`, is missing.
    """
    candidates: tuple[LevelName, ...] = ("strict", "landlock") if asked == "auto" else (asked,)
    for level in candidates:
        if not facilities.missing(NEEDS[level]):
            return level
    missing = facilities.missing(NEEDS[candidates[0]])
    remedies = dict.fromkeys(facility.remedy for facility in missing if facility.remedy)
    raise IsolationUnavailableError(
        asked,
        tuple(f"{facility.name}: {facility.detail}" for facility in missing),
        " ".join(remedies) or "Run `cenote doctor` to see what this machine has.",
    )
