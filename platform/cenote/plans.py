"""What a platform's team is to do, as data: the plans of teams in this process, of agents known by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cenote.runtime.inject.injectables import check_name
from cenote_proto.scalars import make
from cenote_proto.v1 import team_pb2
from cenote_security.errors import UsageError


class Plan:
    """A step, or several. `a >> b`: what `a` gives, `b` takes."""

    def __rshift__(self, after: Plan) -> Plan:
        parts = self.parts if isinstance(self, _Parts) and self.kind == "chain" else (self,)
        return _Parts(kind="chain", parts=(*parts, after))

    def message(self) -> team_pb2.TeamPlan:
        """It on the wire."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep(Plan):
    """One agent, one task; see `cenote.team.Step`."""

    agent: str
    task: str
    takes: tuple[str, ...] = ()
    gives: str | None = None

    def message(self) -> team_pb2.TeamPlan:
        step = make(
            team_pb2.PlanStep, agent=self.agent, task=self.task, takes=self.takes, gives=self.gives or ""
        )
        return team_pb2.TeamPlan(step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts(Plan):
    kind: Literal["chain", "gather", "race", "first"]
    parts: tuple[Plan, ...]

    def message(self) -> team_pb2.TeamPlan:
        plan = team_pb2.TeamPlan()
        parts = team_pb2.PlanParts(parts=[part.message() for part in self.parts])
        getattr(plan, self.kind).CopyFrom(parts)
        return plan


def step(agent: str, task: str, *, takes: str | Sequence[str] = (), gives: str | None = None) -> PlanStep:
    """A step of a member of a platform's team. Raises UsageError for names that are no variables."""
    names = (takes,) if isinstance(takes, str) else tuple(takes)
    for name in (*names, *(() if gives is None else (gives,))):
        check_name(name, "variable")
    return PlanStep(agent=agent, task=task, takes=names, gives=gives)


def gather(*plans: Plan) -> Plan:
    """All at once, on the same inputs; what they give, in order."""
    return _several("gather", plans)


def race(*plans: Plan) -> Plan:
    """The first to end decides, also by failing."""
    return _several("race", plans)


def first(*plans: Plan) -> Plan:
    """The first to succeed decides."""
    return _several("first", plans)


def _several(kind: Literal["gather", "race", "first"], plans: Sequence[Plan]) -> Plan:
    if not plans:
        raise UsageError(f"{kind} takes at least one plan")
    return _Parts(kind=kind, parts=tuple(plans))
