"""Whether declarations hold together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from cenote.harness.artifacts.artifact import KINDS, Artifact, ArtifactKind
from cenote.harness.artifacts.errors import ArtifactCycleError, UnknownArtifactError
from cenote_worker.history.events import Declared


def declared(units: Mapping[str, Declared]) -> dict[str, Artifact]:
    """Those of a history, by name. What a later version of Cenote has declared there is left out."""
    return {
        unit.name: Artifact(unit.name, cast(ArtifactKind, unit.kind), unit.depends_on)
        for unit in units.values()
        if unit.kind in KINDS
    }


def with_declared(known: Mapping[str, Artifact], new: Iterable[Artifact]) -> dict[str, Artifact]:
    """All of them, the new in place of what had their names. Raises UnknownArtifactError, ArtifactCycleError."""
    together = {**known, **{artifact.name: artifact for artifact in new}}
    for artifact in together.values():
        for dependency in artifact.depends_on:
            if dependency not in together:
                raise UnknownArtifactError(dependency, together)
    for name in together:
        _check_no_cycle(together, (name,))
    return together


def _check_no_cycle(artifacts: Mapping[str, Artifact], path: tuple[str, ...]) -> None:
    for dependency in artifacts[path[-1]].depends_on:
        if dependency in path:
            raise ArtifactCycleError((*path[path.index(dependency) :], dependency))
        _check_no_cycle(artifacts, (*path, dependency))
