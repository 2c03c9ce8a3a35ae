"""Agent settings that a platform's jobs and teams pass on."""

from __future__ import annotations

import inspect

import pytest

from cenote.agent import CaveAgent, StopReason
from cenote.gateway.teams.definition import settings_of
from cenote.jobs.client import JobTerms, head_of
from cenote.models import ScriptedModel
from cenote.runtime import PythonRuntime
from cenote_proto.v1 import team_pb2
from cenote_security.errors import UsageError

FIELDS = [field.name for field in team_pb2.AgentSettings.DESCRIPTOR.fields]


def test_each_setting_is_one_of_an_agent_and_of_a_job() -> None:
    """By the same name; a script's type checker knows it."""
    assert set() == set(FIELDS) - set(inspect.signature(CaveAgent).parameters)
    assert set() == set(FIELDS) - set(JobTerms.__annotations__)
    limits = {name for name in inspect.signature(CaveAgent).parameters if name.startswith("max_")}
    assert limits - set(FIELDS) == {"max_rollbacks"}


async def test_limits_and_the_prompt_reach_the_agents() -> None:
    """The given ones, and no others."""
    given = JobTerms(prompt="full", max_total_tokens=50, max_run_time=9.5, max_answer_length=100)
    member = team_pb2.TeamMember(settings=head_of(given).definition.settings)
    assert dict(given) == settings_of(member)
    with PythonRuntime() as runtime:
        agent = CaveAgent(ScriptedModel(["done"]), runtime, **settings_of(member))  # type: ignore[arg-type]
        assert StopReason.BUDGET_EXHAUSTED is (await agent.run("Go.")).stop_reason


@pytest.mark.parametrize("wrong", [{"max_total_tokens": -1}, {"max_run_time": "long"}, {"prompt": 1}])
def test_a_value_of_another_kind_is_refused(wrong: dict[str, object]) -> None:
    """When the job is created."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        head_of(wrong)  # type: ignore[arg-type]
