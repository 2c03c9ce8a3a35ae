"""A runtime and a node as messages for clients."""

from __future__ import annotations

from typing import Final

from cenote.gateway.client_ways import Way
from cenote.gateway.nodes import NodeFacts, RuntimeFacts
from cenote.gateway.runtimes import Parent, RuntimeRecord
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import platform_pb2, runtime_pb2
from cenote_worker.wire import policies

_STATES: Final = {
    "ready": platform_pb2.RuntimeDescription.READY,
    "lost": platform_pb2.RuntimeDescription.LOST,
    "hibernated": platform_pb2.RuntimeDescription.HIBERNATED,
}


def described(record: RuntimeRecord, facts: RuntimeFacts) -> platform_pb2.RuntimeDescription:
    """Without what opens it."""
    return make(
        platform_pb2.RuntimeDescription,
        id=record.id,
        name=record.name,
        policy=policies.without_secrets(runtime_pb2.Policy.FromString(record.policy)),
        state=_STATES[facts.state] if record.made else platform_pb2.RuntimeDescription.STARTING,
        created=record.created,
        clients=facts.clients,
        steps=facts.steps,
        reason=facts.reason,
        durable=record.durable,
        origin=_origin(record.parent) if record.parent else None,
    )


def _origin(parent: Parent) -> platform_pb2.Origin:
    return make(
        platform_pb2.Origin,
        runtime=parent.runtime,
        name=parent.name,
        step=parent.point.step,
        history=parent.point.history,
    )


def open_at(
    description: platform_pb2.RuntimeDescription, node: str, way: Way, capability: tuple[str, int]
) -> platform_pb2.RuntimeDescription:
    """The same, with where it is and what opens it there."""
    description.node = utf8_text(node)
    description.address, description.authority = utf8_text(way.address), utf8_text(way.authority)
    text, description.expires = capability
    description.capability = utf8_text(text)
    return description


def described_node(facts: NodeFacts) -> platform_pb2.NodeDescription:
    return make(
        platform_pb2.NodeDescription,
        id=facts.id,
        address=facts.address,
        actors=facts.actors,
        runtimes=facts.runtimes,
        references=facts.references,
        reference_bytes=facts.reference_bytes,
        processors=facts.processors,
        silent=facts.silent,
    )
