"""The settings that all tasks of a job share, as clients send them: checked once, at the edge. Values only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cenote.gateway.jobs.rules import JobRules
from cenote.gateway.teams.definition import MAX_BYTES, budget_of, check_model, check_secrets
from cenote.gateway.values.bounds import TenantBounds
from cenote.jobs.checks import MAX_CODE, MAX_VARIABLES, wrong_identifier
from cenote.team.budget import Budget
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_security.errors import UsageError
from cenote_security.ids import TenantId
from cenote_security.policy import SandboxPolicy
from cenote_security.problems import Problems
from cenote_worker.wire import option_messages, policies


def check_definition(
    definition: job_pb2.JobDefinition,
    secrets: Mapping[str, str],
    *,
    endpoints: Collection[str],
    bounds: TenantBounds,
    tenant: TenantId,
) -> None:
    """endpoints: base URLs that models of tenants may use. Raises UsageError, RejectedError, with all problems."""
    if definition.ByteSize() > MAX_BYTES:
        raise UsageError(f"what a job's tasks have in common has up to {MAX_BYTES} bytes; share larger data")
    wrong = Problems()
    with wrong.noting():
        check_secrets(secrets)
    if definition.HasField("model"):
        with wrong.noting():
            check_model("the job", definition.model, secrets, endpoints)
    with wrong.noting():
        bounds.apply(sandbox_of(definition), tenant)
    with wrong.noting():
        rules_of(definition)
    with wrong.noting():
        check_budget(definition.budget)
    if len(definition.setup) > MAX_CODE:
        wrong.note(UsageError(f"setup has up to {MAX_CODE} characters, not {len(definition.setup)}"))
    if len(definition.variables) > MAX_VARIABLES:
        wrong.note(UsageError(f"a job has up to {MAX_VARIABLES} variables, not {len(definition.variables)}"))
    names = [*definition.variables, *([definition.result] if definition.result else [])]
    for name in names[: MAX_VARIABLES + 1]:
        if problem := wrong_identifier(name):
            wrong.note(UsageError(problem))
    wrong.raise_all()


def check_budget(message: team_pb2.TeamBudget) -> Budget:
    """Raises UsageError for limits that make no sense, and for limits that a job cannot have."""
    for name in ("agents", "depth", "seconds"):
        if message.HasField(name):
            raise UsageError(
                f"the budget of a job has no {name}: it limits tokens and cost; the rest is for `concurrency` and "
                f"`timeout`"
            )
    return budget_of(message)


def rules_of(definition: job_pb2.JobDefinition) -> JobRules:
    """Raises UsageError."""
    return option_messages.read_options(JobRules, definition, as_asked=True)


def sandbox_of(definition: job_pb2.JobDefinition) -> SandboxPolicy:
    return (
        policies.to_requested_policy(definition.sandbox)
        if definition.HasField("sandbox")
        else SandboxPolicy()
    )
