"""What this machine's kernel offers for jails, and which isolation that is enough for.

The isolation in force is what the policy asks for, or for `auto` the best that the facilities allow; never less
than was asked for. Where something is missing, its remedy says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation
from cenote_security.walls.level import LevelName


@dataclass(frozen=True, kw_only=True)
class Facility:
    """One facility. detail: what was found, or the error as the kernel gave it. remedy: how to enable it."""

    name: str
    available: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Facilities:
    """The outcome of a probe, by name. A facility that was not tried counts as missing."""

    found: tuple[Facility, ...]

    def __getitem__(self, name: str) -> Facility:
        for facility in self.found:
            if facility.name == name:
                return facility
        return Facility(name=name, available=False, detail="not tried")

    def missing(self, names: Iterable[str]) -> tuple[Facility, ...]:
        return tuple(facility for name in names if not (facility := self[name]).available)


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
