"""The execution state of a runtime: what ran, who wrote what, what depends on it, and how two states differ."""

from cenote.harness.blame import Blame
from cenote.harness.dependents import Dependents
from cenote.harness.difference import StateDiff
from cenote.harness.moment import LiveVariable, Moment
from cenote.harness.slices import Slice
from cenote.harness.state import ExecutionState
from cenote.harness.step import Step

__all__ = ["Blame", "Dependents", "ExecutionState", "LiveVariable", "Moment", "Slice", "StateDiff", "Step"]
