"""What there is to know of a platform's runtime, as plain data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenote_proto.v1 import platform_pb2


def as_data(description: platform_pb2.RuntimeDescription) -> dict[str, Any]:
    """A runtime for `--json`, without what opens it."""
    from google.protobuf.json_format import MessageToDict

    from cenote_proto.v1 import platform_pb2

    policy = MessageToDict(description.policy, preserving_proto_field_name=True)
    created = datetime.fromtimestamp(description.created, UTC)
    return {
        "name": description.name,
        "id": description.id,
        "state": platform_pb2.RuntimeDescription.State.Name(description.state).lower(),
        "reason": description.reason,
        "created": created.isoformat(timespec="seconds"),
        "node": description.node,
        "address": description.address,
        "clients": description.clients,
        "steps": description.steps,
        "durable": description.durable,
        "parent": description.origin.name,
        "parent_step": description.origin.step if description.HasField("origin") else None,
        "policy": policy,
    }
