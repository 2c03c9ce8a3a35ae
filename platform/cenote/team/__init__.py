"""Teams: agents that share a budget, hand each other references, and are sent through plans."""

from __future__ import annotations

from cenote.models.prices import Price
from cenote.team.budget import Amount, Budget
from cenote.team.budget_ledger import Remaining
from cenote.team.errors import (
    BudgetExceededError,
    NoSuccessError,
    StepFailedError,
    UnknownTeamNameError,
    VariablesFullError,
)
from cenote.team.events import TeamEvent
from cenote.team.member import Member
from cenote.team.metered_model import Meter
from cenote.team.progress import ReferenceStore, StepResult
from cenote.team.runtimes import RuntimeFactory
from cenote.team.state import AgentState, ReferenceState, StepState, TeamState, VariableState
from cenote.team.team import Team
from cenote.team.variables import TeamVariable, TeamVariables
from cenote.team.work import Outcome, Step, Work, fan_out, first, gather, race

__all__ = [
    "AgentState",
    "Amount",
    "Budget",
    "BudgetExceededError",
    "fan_out",
    "first",
    "gather",
    "Member",
    "Meter",
    "NoSuccessError",
    "Outcome",
    "Price",
    "race",
    "ReferenceState",
    "ReferenceStore",
    "Remaining",
    "RuntimeFactory",
    "Step",
    "StepFailedError",
    "StepResult",
    "StepState",
    "Team",
    "TeamEvent",
    "TeamState",
    "TeamVariable",
    "TeamVariables",
    "UnknownTeamNameError",
    "VariablesFullError",
    "VariableState",
    "Work",
]
