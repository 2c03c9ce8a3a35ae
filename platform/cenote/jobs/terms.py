"""What all tasks of a job have in common, as a script says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypedDict

from cenote.jobs.job import budget_message
from cenote.platform_team import ModelSpec
from cenote.runtime.references import ObjectReference
from cenote.runtime.remote.call import new_key
from cenote.team.budget import Budget
from cenote_proto.scalars import make, put
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.wire import policies


class JobTerms(TypedDict, total=False):
    """See Jobs.submit. The last ones, from `max_steps` on, are settings of the agents, see CaveAgent."""

    name: str
    key: str
    model: str | ModelSpec | None
    secrets: Mapping[str, str] | None
    sandbox: SandboxPolicy | None
    setup: str
    variables: Mapping[str, ObjectReference] | None
    result: str
    concurrency: int
    attempts: int
    backoff: float
    timeout: float | None
    budget: Budget | None
    max_steps: int | None
    instructions: str | None
    system_instructions: str | None
    max_history: int | None
    max_exec_output: int | None
    max_exec_timeout: float | None
    context_window: int | None
    namespace_delta: bool | None
    prompt: Literal["lean", "full"] | None
    max_run_time: float | None
    max_total_tokens: int | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    max_answer_time: float | None
    max_answer_length: int | None


_PLAIN: Final = frozenset({"setup", "result", "concurrency", "attempts", "backoff", "timeout"})
_SETTINGS: Final = frozenset(field.name for field in team_pb2.AgentSettings.DESCRIPTOR.fields)


def head_of(terms: JobTerms) -> job_pb2.JobHead:
    """Without its variables, which have to be kept first. Raises UsageError."""
    if unknown := sorted(set(terms) - set(JobTerms.__annotations__)):
        known = ", ".join(sorted(JobTerms.__annotations__))
        raise UsageError(f"a job has no {unknown[0]!r}; there are {known}")
    definition = job_pb2.JobDefinition()
    for name, value in terms.items():
        if value is not None and name in _PLAIN:
            _set(definition, name, value)
        elif value is not None and name in _SETTINGS:
            _set(definition.settings, name, value)
    model, sandbox, budget = terms.get("model"), terms.get("sandbox"), terms.get("budget")
    if model is not None:
        definition.model.CopyFrom(_model(model))
    if sandbox is not None:
        definition.sandbox.CopyFrom(policies.to_message(sandbox))
    if budget is not None:
        definition.budget.CopyFrom(budget_message(budget))
    key, secrets = terms.get("key") or new_key(), dict(terms.get("secrets") or {})
    return make(job_pb2.JobHead, name=terms.get("name", ""), key=key, definition=definition, secrets=secrets)


def _model(model: object) -> team_pb2.TeamModel:
    spec = ModelSpec(name=model) if isinstance(model, str) else model
    if not isinstance(spec, ModelSpec):
        raise UsageError(
            f"a job works without this process: name the model, or pass a ModelSpec, not a {type(model).__name__}"
        )
    return spec.message()


def _set(message: job_pb2.JobDefinition | team_pb2.AgentSettings, name: str, value: object) -> None:
    try:
        put(message, name, value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}={value!r:.100} is no such setting: {error}") from None
