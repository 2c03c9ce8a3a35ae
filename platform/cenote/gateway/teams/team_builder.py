"""Builds a team that can work from its data: models, members, plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cenote.gateway.teams import definition as data
from cenote.models import LiteLLMModel, Model, OpenAIServerModel, ScriptedModel
from cenote.runtime.inject.injectables import Variable
from cenote.team import Step, Team, Work, first, gather, race
from cenote.team.work import Chain
from cenote_proto.v1 import team_pb2

NO_KEY = "none"
"""Sent where a tenant names a server and gives no key: keys in the platform's environment are not for that server."""

_MODEL = team_pb2.TeamModel


def add_members(
    team: Team,
    definition: team_pb2.TeamDefinition,
    secrets: Mapping[str, str],
    used: Callable[[str], int],
    variables: Sequence[Variable],
) -> None:
    """used: turns of each agent's model in earlier processes of this run. variables: the lead's."""
    lead = next((member.name for member in definition.members if member.lead), definition.members[0].name)
    for member in definition.members:
        # These were checked at the edge; CaveAgent checks the rest.
        settings: dict[str, Any] = data.settings_of(member)
        team.add(
            member.name,
            model=partial(model_of, member.model, secrets, used(member.name)),
            description=member.description or None,
            variables=variables if member.name == lead else (),
            sandbox=data.sandbox_of(member),
            under=team[member.under] if member.under else None,
            lead=member.lead,
            **settings,
        )


def model_of(model: team_pb2.TeamModel, secrets: Mapping[str, str], used: int) -> Model:
    """used: turns of a script that were already taken."""
    if model.kind == _MODEL.SCRIPTED:
        return ScriptedModel(list(model.script)[used:], model_id=model.name or "scripted")
    key, parameters = secrets.get(model.secret), data.parameters_of(model)
    if model.kind == _MODEL.OPENAI:
        return OpenAIServerModel(model.name, key or NO_KEY, model.base_url, trust_env=False, **parameters)
    if model.base_url:
        return LiteLLMModel(model.name, key or NO_KEY, **parameters, api_base=model.base_url)
    return LiteLLMModel(model.name, key, **parameters)


def keyless(definition: team_pb2.TeamDefinition) -> list[str]:
    """Members whose models call a server without a key of the team's."""
    return [
        member.name
        for member in definition.members
        if member.model.kind != _MODEL.SCRIPTED and not member.model.secret
    ]


def work_of(plan: team_pb2.TeamPlan, team: Team) -> Work:
    """Raises UsageError for parts that do not fit together."""
    match plan.WhichOneof("kind"):
        case "step":
            step = plan.step
            return Step(team[step.agent], step.task, takes=list(step.takes), gives=step.gives or None)
        case "chain":
            return Chain(*_parts(plan.chain, team))
        case "gather":
            return gather(*_parts(plan.gather, team))
        case "race":
            return race(*_parts(plan.race, team))
    return first(*_parts(plan.first, team))


def _parts(parts: team_pb2.PlanParts, team: Team) -> list[Work]:
    return [work_of(part, team) for part in parts.parts]
