"""Artifacts: named units of code, text and data, what they depend on, and bringing them up to date."""

from cenote.harness.artifacts.artifact import Artifact, ArtifactKind
from cenote.harness.artifacts.build import BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.artifacts.errors import ArtifactCycleError, UnbuildableError, UnknownArtifactError
from cenote.harness.artifacts.sightings import ArtifactVersion
from cenote.harness.artifacts.tracked import TrackedArtifact

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
