"""Credentials of the jails of a team or job: apart from its definition, which is stored in a database and shown."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from cenote_proto.v1 import job_pb2, runtime_pb2, team_pb2
from cenote_worker.wire import policies

Works = job_pb2.JobDefinition | team_pb2.TeamDefinition


def taken_out(definition: Works) -> dict[str, str]:
    """Removes them from the definition. Returns them by whose policy they are in, for `put_back`."""
    taken: dict[str, str] = {}
    for whose, policy in _policies(definition):
        if secrets := policies.take_secrets(policy):
            taken[whose] = base64.b64encode(secrets).decode()
    return taken


def put_back(definition: Works, taken: Mapping[str, str]) -> None:
    """Adds what was taken out."""
    for whose, policy in _policies(definition):
        if whose in taken:
            policies.give_secrets(policy, base64.b64decode(taken[whose]))


def _policies(definition: Works) -> Iterator[tuple[str, runtime_pb2.Policy]]:
    """The common one under an empty name, those of members under theirs."""
    if definition.HasField("sandbox"):
        yield "", definition.sandbox
    if isinstance(definition, team_pb2.TeamDefinition):
        for member in definition.members:
            if member.HasField("sandbox"):
                yield member.name, member.sandbox
