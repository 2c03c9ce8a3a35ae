"""Artifacts: named units of code, text and data, what they depend on, and bringing them up to date."""

from cenote.harness.artifacts.build import BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.artifacts.declaration import (
    Artifact,
    ArtifactCycleError,
    ArtifactKind,
    UnbuildableError,
    UnknownArtifactError,
)
from cenote.harness.artifacts.staleness import ArtifactVersion, TrackedArtifact

__all__ = [
    "Artifact",
    "ArtifactCycleError",
    "ArtifactKind",
    "ArtifactVersion",
    "BuildOptions",
    "BuildResult",
    "TrackedArtifact",
    "UnbuildableError",
    "UnknownArtifactError",
]
