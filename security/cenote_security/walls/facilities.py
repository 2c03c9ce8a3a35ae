"""What this machine's kernel offers for jails, each tried, and what to do where something is missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
