"""What there is to know of a platform's runtime, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenote_proto.v1 import platform_pb2


def _plain(value: object) -> object:
    """What is set of a message. ProtoJSON would write sizes as text, for JavaScript's sake."""
    from google.protobuf.message import Message

    if isinstance(value, Message):
        return {field.name: _plain(part) for field, part in value.ListFields()}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value


def as_data(description: platform_pb2.RuntimeDescription) -> dict[str, Any]:
    """A runtime for `--json`, without what opens it."""
    from cenote_proto.v1 import platform_pb2

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
        "policy": _plain(description.policy),
    }
