"""The execution state of a runtime: what ran, what depends on it, and what a patch of it has run again."""

from cenote.harness.apply import ApplyOptions, ApplyResult, Progress, apply_plan
from cenote.harness.apply_auditor import Audit, Unlike, UnsoundError
from cenote.harness.apply_ground import EffectNotRepeatedError, Ground
from cenote.harness.artifacts import (
    Artifact,
    ArtifactCycleError,
    ArtifactVersion,
    BuildOptions,
    BuildResult,
    TrackedArtifact,
    UnbuildableError,
    UnknownArtifactError,
)
from cenote.harness.blame import Blame
from cenote.harness.dependents import Dependents
from cenote.harness.diagnosis import Diagnosis, diagnose
from cenote.harness.difference import StateDiff
from cenote.harness.moment import LiveVariable, Moment
from cenote.harness.patch import Patch
from cenote.harness.patch_errors import PatchConflictError, StalePlanError, StateNotKeptError
from cenote.harness.patch_text import TextEdit
from cenote.harness.plan import BlockedEffect, Plan, PlannedStep
from cenote.harness.plan_forecast import make_plan
from cenote.harness.slice_source import SlicedStatement
from cenote.harness.slice_verifying import Verification
from cenote.harness.slices import Slice
from cenote.harness.state import ExecutionState
from cenote.harness.step import Step

__all__ = [
    "apply_plan",
    "ApplyOptions",
    "ApplyResult",
    "Artifact",
    "ArtifactCycleError",
    "ArtifactVersion",
    "Audit",
    "Blame",
    "BlockedEffect",
    "BuildOptions",
    "BuildResult",
    "Dependents",
    "diagnose",
    "Diagnosis",
    "EffectNotRepeatedError",
    "ExecutionState",
    "Ground",
    "LiveVariable",
    "make_plan",
    "Moment",
    "Patch",
    "PatchConflictError",
    "Plan",
    "PlannedStep",
    "Progress",
    "Slice",
    "SlicedStatement",
    "StalePlanError",
    "StateDiff",
    "StateNotKeptError",
    "Step",
    "TextEdit",
    "TrackedArtifact",
    "UnbuildableError",
    "UnknownArtifactError",
    "Unlike",
    "UnsoundError",
    "Verification",
]
