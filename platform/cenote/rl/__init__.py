"""Reinforcement learning: a task in a runtime as an environment with `reset` and `step`."""

from cenote.rl.environment import Environment, Transition
from cenote.runtime.faces.final_state import FinalState, Score
from cenote_security.verdict import Verdict

__all__ = ["Environment", "FinalState", "Score", "Transition", "Verdict"]
