"""Teams: agents that share a budget, hand each other references, and are sent through plans.

Names are loaded on first use: who needs one module of this package, such as budgets, does not wait for all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_NAMES = {
    "cenote.models.prices": ("Price",),
    "cenote.team.budget": (
        "Amount",
        "Budget",
    ),
    "cenote.team.budget_ledger": ("Remaining",),
    "cenote.team.errors": (
        "BudgetExceededError",
        "NoSuccessError",
        "StepFailedError",
        "UnknownTeamNameError",
        "VariablesFullError",
    ),
    "cenote.team.events": ("TeamEvent",),
    "cenote.team.member": ("Member",),
    "cenote.team.metered_model": ("Meter",),
    "cenote.team.progress": (
        "ReferenceStore",
        "StepResult",
    ),
    "cenote.team.runtimes": ("RuntimeFactory",),
    "cenote.team.state": (
        "AgentState",
        "ReferenceState",
        "StepState",
        "TeamState",
        "VariableState",
    ),
    "cenote.team.team": ("Team",),
    "cenote.team.variables": (
        "TeamVariable",
        "TeamVariables",
    ),
    "cenote.team.work": (
        "Outcome",
        "Step",
        "Work",
        "fan_out",
        "first",
        "gather",
        "race",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
