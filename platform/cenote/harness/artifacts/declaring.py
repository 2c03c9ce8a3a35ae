"""Whether declarations hold together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, cast

from cenote.harness.artifacts.artifact import KINDS, Artifact, ArtifactKind
from cenote.harness.artifacts.errors import ArtifactCycleError, UnknownArtifactError
from cenote_security.errors import UsageError
from cenote_worker.history.events import Declared

MAX_ARTIFACTS: Final = 500
"""Of one history: each question about them goes along all steps with all of them."""


def declared(units: Mapping[str, Declared]) -> dict[str, Artifact]:
    """Those of a history, by name. What a later version of Cenote has declared there is left out."""
    known = {name for name, unit in units.items() if unit.kind in KINDS}
    return {name: _artifact(unit, known) for name, unit in units.items() if name in known}


def with_declared(known: Mapping[str, Artifact], new: Iterable[Artifact]) -> dict[str, Artifact]:
    """All of them, the new in place of what had their names. Raises UnknownArtifactError, ArtifactCycleError."""
    together = {**known, **{artifact.name: artifact for artifact in new}}
    for artifact in together.values():
        for dependency in artifact.depends_on:
            if dependency not in together:
                raise UnknownArtifactError(dependency, together)
    depending_last(together)
    return together


def depending_last(artifacts: Mapping[str, Artifact]) -> Sequence[str]:
    """All names, each behind those that it depends on. Raises ArtifactCycleError."""
    try:
        return tuple(
            TopologicalSorter({name: one.depends_on for name, one in artifacts.items()}).static_order()
        )
    except CycleError as error:  # whose path goes from what is needed to what needs it
        raise ArtifactCycleError(error.args[1][::-1]) from None


def news(units: Mapping[str, Declared], asked: Iterable[Declared]) -> tuple[Declared, ...]:
    """What of this is different from what is declared, so that the same once more changes nothing.

    Raises UsageError for what is no artifact, and where they would not hold together.
    """
    together, new = dict(units), list[Artifact]()
    for unit in (asked := tuple(asked)):
        if unit.dropped:
            _drop(unit.name, together)
        else:
            new.append(_artifact(unit, unit.depends_on))
            together[unit.name] = unit
    if len(together) > MAX_ARTIFACTS:
        raise UsageError(f"a runtime has at most {MAX_ARTIFACTS} artifacts; drop some first")
    with_declared(declared(together), new)
    return tuple(unit for unit in asked if not _equal(units.get(unit.name), unit))


def _drop(name: str, units: dict[str, Declared]) -> None:
    units.pop(name, None)
    for other in units.values():
        if name in other.depends_on:
            raise UsageError(f"{other.name} depends on {name}; drop that first, or declare it anew without")


def _equal(former: Declared | None, unit: Declared) -> bool:
    if former is None or unit.dropped:
        return former is None and unit.dropped
    return (former.kind, former.depends_on) == (unit.kind, unit.depends_on)


def _artifact(unit: Declared, known: Iterable[str]) -> Artifact:
    depends_on = tuple(name for name in unit.depends_on if name in known)
    return Artifact(unit.name, cast(ArtifactKind, unit.kind), depends_on)
