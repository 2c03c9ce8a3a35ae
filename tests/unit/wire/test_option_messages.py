"""Options and messages with equal field names: one converter for all of them, by descriptor."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from cenote.gateway.jobs.rules import JobRules
from cenote.team.budget import Budget
from cenote_proto.v1 import job_pb2, platform_pb2, runtime_pb2, team_pb2
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.options import Options, definitions
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.checkpoints.retention import Retention
from cenote_worker.wire import option_messages

PAIRS: list[tuple[type[Options], type[Message], Options]] = [
    (
        SandboxPolicy,
        runtime_pb2.Policy,
        SandboxPolicy(network=Allow(["a.b"], volume=0), tracking=False, env={"A": ""}),
    ),
    (Mount, runtime_pb2.PolicyMount, Mount(source="/a", writable=True)),
    (Allow, runtime_pb2.Network, Allow(["pypi.org"], connections=3)),
    (Retention, platform_pb2.CreateRuntimeRequest, Retention(durable=True, hibernate_after=2.5)),
    (Budget, team_pb2.TeamBudget, Budget(tokens=0, cost=0.5)),
    (JobRules, job_pb2.JobDefinition, JobRules(attempts=3, timeout=2.5)),
]


@pytest.mark.parametrize(("kind", "message", "value"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_there_and_back(kind: type[Options], message: Any, value: Options) -> None:
    """Zero of a field with presence is zero, not absence; each option has a field."""
    sent = option_messages.fill_options(message(), value)
    assert value == option_messages.read_options(kind, message.FromString(sent.SerializeToString()))
    fields = message.DESCRIPTOR.fields_by_name
    assert [] == [each.name for each in definitions(kind) if (each.option.wire or each.name) not in fields]


def test_what_is_not_set_is_as_by_default() -> None:
    """If zero is not a value of the option; otherwise it is zero, as for the kept output."""
    asked = option_messages.read_options(SandboxPolicy, runtime_pb2.Policy(), as_asked=True)
    assert SandboxPolicy(output=0, preload=()) == asked
    assert JobRules() == option_messages.read_options(JobRules, job_pb2.JobDefinition(), as_asked=True)


def test_a_message_is_checked_as_a_constructor_is() -> None:
    """By the same bounds, all at once."""
    with pytest.raises(UsageError, match=r"2 things are wrong: \(1\) concurrency is .*; \(2\) timeout is"):
        option_messages.read_options(
            JobRules, job_pb2.JobDefinition(concurrency=5000, timeout=-1), as_asked=True
        )
    with pytest.raises(UsageError, match=r"hibernate_after is 0 .for never. or more seconds, not nan"):
        option_messages.read_options(
            Retention, platform_pb2.CreateRuntimeRequest(hibernate_after=float("nan"))
        )


def test_a_text_that_no_message_can_hold() -> None:
    with pytest.raises(UsageError, match="no text in UTF-8"):
        option_messages.fill_options(runtime_pb2.PolicyMount(), Mount(source="/\udcff"))
