"""The execution state of a runtime: what ran, what depends on it, and what a patch of it has run again."""

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, Progress, apply_plan
from cenote.harness.applying.auditor import Audit, Unlike, UnsoundError
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
from cenote.harness.notebook_import import ImportedCell, ImportedNotebook, import_notebook
from cenote.harness.patching.errors import PatchConflictError, StalePlanError, StateNotKeptError
from cenote.harness.patching.patch import Patch
from cenote.harness.patching.text_edits import TextEdit
from cenote.harness.planning.forecast import make_plan
from cenote.harness.planning.plan import BlockedEffect, Plan, PlannedStep
from cenote.harness.planning.replay_target import EffectNotRepeatedError, Ground
from cenote.harness.questions.diagnosis import Diagnosis, diagnose
from cenote.harness.questions.execution_state import ExecutionState
from cenote.harness.questions.provenance import Blame, Dependents, LiveVariable, Moment, StateDiff
from cenote.harness.record.step import Step
from cenote.harness.slicing.program import SlicedStatement
from cenote.harness.slicing.slices import Slice, Verification

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
    "import_notebook",
    "ImportedCell",
    "ImportedNotebook",
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
