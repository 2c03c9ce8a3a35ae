"""The members of a team and its work, as clients send them: checked once, at the edge. Values only."""

from __future__ import annotations

import json
import keyword
from collections.abc import Collection, Mapping
from typing import Any, Final

from cenote.gateway.values.bounds import TenantBounds
from cenote.team.budget import Budget
from cenote_proto.v1 import team_pb2
from cenote_security.errors import RejectedError, UsageError, WeakerSandboxError
from cenote_security.ids import TenantId
from cenote_security.policy import SandboxPolicy, weakness
from cenote_security.problems import Problems
from cenote_worker.wire import option_messages, policies

MAX_MEMBERS: Final = 64
MAX_BYTES: Final = 512 * 2**10
"""Bytes of a definition, or of a run's work: both are stored."""

MAX_SECRETS: Final = 32
MAX_SECRET: Final = 16 * 2**10
"""Characters: a key has a hundred, a certificate some thousands."""

MAX_DEPTH: Final = 20
MAX_STEPS: Final = 1_000
"""Steps of a plan."""

RESERVED: Final = frozenset({"team", "budget", "shared"})
"""Names with another meaning in an agent's namespace."""

PARAMETERS: Final = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "reasoning_effort",
        "verbosity",
    }
)
"""Parameters that tenants may set. Others name files, addresses and identities of the platform's machine."""

_MODEL = team_pb2.TeamModel


def check_definition(
    definition: team_pb2.TeamDefinition,
    secrets: Mapping[str, str],
    *,
    endpoints: Collection[str],
    bounds: TenantBounds,
    tenant: TenantId,
) -> None:
    """endpoints: base URLs that models of tenants may use. Raises UsageError, RejectedError, WeakerSandboxError."""
    _check_size(definition.ByteSize(), "a team's definition")
    check_secrets(secrets)
    if not 1 <= len(definition.members) <= MAX_MEMBERS:
        raise UsageError(f"a team has 1 to {MAX_MEMBERS} members, not {len(definition.members)}")
    if sum(member.lead for member in definition.members) > 1:
        raise UsageError("a team has one lead")
    wrong = Problems()
    with wrong.noting():
        budget_of(definition.budget)
    policies_by_name: dict[str, SandboxPolicy] = {}
    for member in definition.members:
        with wrong.noting():
            _check_name(member.name, policies_by_name)
        with wrong.noting():
            check_model(repr(member.name), member.model, secrets, endpoints)
        policy = SandboxPolicy()
        with wrong.noting():
            policy = bounds.apply(_policy(definition, member, policies_by_name), tenant)
            if member.under:
                _check_place(member, policy, policies_by_name)
        policies_by_name[member.name] = policy
    wrong.raise_all()


def check_work(request: team_pb2.StartRunRequest, definition: team_pb2.TeamDefinition) -> None:
    """Checks a run's work against the team's definition. Raises UsageError."""
    _check_size(request.ByteSize(), "what a team is set to do")
    if request.HasField("plan") == bool(request.task.strip()):
        raise UsageError("a team is set to work on a task, or on a plan")
    if request.HasField("plan"):
        _check_plan(request.plan, {member.name for member in definition.members})
        if request.variables:
            raise UsageError("variables are for a task; the steps of a plan name what they take")
    elif request.inputs:
        raise UsageError("inputs without names are for a plan; give a task its variables by name")
    for name in request.variables:
        _check_identifier(name, "variable")


def budget_of(message: team_pb2.TeamBudget) -> Budget:
    """Raises UsageError for one that makes no sense."""
    return option_messages.read_options(Budget, message)


def settings_of(member: team_pb2.TeamMember) -> dict[str, object]:
    """The arguments of CaveAgent for a member."""
    return {field.name: value for field, value in member.settings.ListFields()}


def sandbox_of(member: team_pb2.TeamMember) -> SandboxPolicy | None:
    """The member's own policy; None if it has none."""
    return policies.to_requested_policy(member.sandbox) if member.HasField("sandbox") else None


def common_sandbox(definition: team_pb2.TeamDefinition) -> SandboxPolicy:
    return (
        policies.to_requested_policy(definition.sandbox)
        if definition.HasField("sandbox")
        else SandboxPolicy()
    )


def parameters_of(model: team_pb2.TeamModel) -> dict[str, Any]:  # whatever the provider takes
    """Raises UsageError unless it is a JSON object of parameters that a tenant may set."""
    try:
        parameters = json.loads(model.parameters or "{}")
    except (ValueError, RecursionError):
        parameters = None
    if not isinstance(parameters, dict):
        raise UsageError('the parameters of a model are a JSON object, such as {"temperature": 0.2}')
    if unknown := sorted(set(parameters) - PARAMETERS):
        known = ", ".join(sorted(PARAMETERS))
        raise UsageError(
            f"a model of the platform's has no parameter {unknown[0][:100]!r}; there are {known}"
        )
    return parameters


def _policy(
    definition: team_pb2.TeamDefinition, member: team_pb2.TeamMember, known: Mapping[str, SandboxPolicy]
) -> SandboxPolicy:
    own = sandbox_of(member)
    return own or known.get(member.under) or common_sandbox(definition)


def _check_place(
    member: team_pb2.TeamMember, policy: SandboxPolicy, known: Mapping[str, SandboxPolicy]
) -> None:
    if member.under not in known:
        raise UsageError(
            f"{member.name!r} is under {member.under[:100]!r}, who comes before it or not at all"
        )
    if member.lead:
        raise UsageError("a team's lead is no sub-agent")
    if (found := weakness(policy, known[member.under])) is not None:
        raise WeakerSandboxError(member.name, found.field, found.wanted, found.allowed)


def _check_name(name: str, taken: Collection[str]) -> None:
    _check_identifier(name, "member of a team")
    if name in taken:
        raise UsageError(f"a team has one {name!r}")


def _check_identifier(name: str, kind: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or len(name) > 100 or name in RESERVED:
        raise UsageError(
            f"{name[:100]!r} is no name for a {kind}: it is a Python identifier, and not {_reserved()}"
        )


def _reserved() -> str:
    return ", ".join(sorted(RESERVED))


def check_model(
    whose: str, model: team_pb2.TeamModel, secrets: Mapping[str, str], endpoints: Collection[str]
) -> None:
    """whose: for errors. Raises UsageError, RejectedError."""
    parameters_of(model)
    if model.secret and model.secret not in secrets:
        raise UsageError(f"the model of {whose} takes the secret {model.secret[:100]!r}, which was not given")
    if model.kind == _MODEL.SCRIPTED:
        return
    if model.kind not in (_MODEL.LITELLM, _MODEL.OPENAI) or not model.name:
        raise UsageError(f"the model of {whose} has no name; give it as model='provider/name'")
    if model.kind == _MODEL.OPENAI and not model.base_url:
        raise UsageError(f"the model of {whose} is behind a server, which has a base_url")
    if model.base_url and model.base_url.rstrip("/") not in {each.rstrip("/") for each in endpoints}:
        raise RejectedError(
            f"this platform sends nothing to {model.base_url[:200]!r} for its tenants; its operator allows that with "
            f"`cenote up --model-endpoint URL`"
        )


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raises UsageError."""
    if len(secrets) > MAX_SECRETS or any(len(value) > MAX_SECRET for value in secrets.values()):
        raise UsageError(f"there are up to {MAX_SECRETS} secrets of up to {MAX_SECRET} characters")


def _check_plan(plan: team_pb2.TeamPlan, members: Collection[str]) -> None:
    waiting, steps = [(plan, 1)], 0
    while waiting:
        part, depth = waiting.pop()
        kind, steps = part.WhichOneof("kind"), steps + 1
        if depth > MAX_DEPTH or steps > MAX_STEPS:
            raise UsageError(f"a plan has up to {MAX_STEPS} parts, up to {MAX_DEPTH} inside each other")
        if kind == "step":
            _check_step(part.step, members)
        elif kind is None or not getattr(part, kind).parts:
            raise UsageError("a part of a plan is a step, or some parts")
        else:
            waiting += [(inner, depth + 1) for inner in getattr(part, kind).parts]


def _check_step(step: team_pb2.PlanStep, members: Collection[str]) -> None:
    if step.agent not in members:
        raise UsageError(f"a step is for {step.agent[:100]!r}, who is not in the team")
    if not step.task.strip():
        raise UsageError(f"the step of {step.agent!r} has no task")
    for name in (*step.takes, *([step.gives] if step.gives else [])):
        _check_identifier(name, "variable")


def _check_size(size: int, what: str) -> None:
    if size > MAX_BYTES:
        raise UsageError(f"{what} has up to {MAX_BYTES} bytes; put data into references")
