"""A sandbox policy as a message and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cenote_proto.scalars import make, put, utf8_text, utf8_texts
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.policy import Mount, SandboxPolicy


def to_message(policy: SandboxPolicy) -> runtime_pb2.Policy:
    """Raises UsageError for what no message can hold: written out, it would be another variable, or another path."""
    for text in (*policy.env, *policy.env.values(), *_paths(policy)):
        if text != utf8_text(text):
            raise UsageError(f"{text!a} is no text in UTF-8: a policy with it holds on this machine alone")
    message = make(
        runtime_pb2.Policy,
        isolation=policy.isolation,
        memory=policy.memory_bytes,
        cpus=policy.cpus,
        processes=policy.processes,
        disk=policy.disk_bytes,
        noexec=policy.noexec,
        output=policy.output_bytes,
        cell_timeout=policy.cell_timeout or 0,
        call_timeout=policy.call_timeout or 0,
        runtime_timeout=policy.runtime_timeout or 0,
        limits=policy.limits,
        snapshots=policy.snapshots,
        env=dict(policy.env),
        preload=policy.preload,
        untracked=not policy.tracking,
    )
    if isinstance(policy.network, Allow):
        message.network.destinations.extend(utf8_texts(policy.network.destinations))
        message.network.connections = policy.network.connections
        message.network.rate = policy.network.rate
        message.network.volume = policy.network.volume_bytes
    for mount in policy.mounts:
        make(message.mounts.add, source=mount.source, target=mount.target, writable=mount.writable)
    return message


def _paths(policy: SandboxPolicy) -> Iterator[str]:
    for mount in policy.mounts:
        yield from (mount.source, mount.target)


def from_message(message: runtime_pb2.Policy) -> SandboxPolicy:
    """Raises UsageError for what is no policy: the message may be anybody's."""
    return SandboxPolicy(
        isolation=message.isolation,  # type: ignore[arg-type]  # checked by the policy itself, as are all others
        memory=message.memory,
        cpus=message.cpus,
        processes=message.processes,
        disk=message.disk,
        noexec=message.noexec,
        output=message.output,
        cell_timeout=message.cell_timeout or None,
        call_timeout=message.call_timeout or None,
        runtime_timeout=message.runtime_timeout or None,
        limits=message.limits,  # type: ignore[arg-type]
        snapshots=message.snapshots or "auto",  # type: ignore[arg-type]
        network=_network(message.network) if message.HasField("network") else "none",
        env=dict(message.env),
        mounts=[Mount(source=m.source, target=m.target, writable=m.writable) for m in message.mounts],
        preload=tuple(message.preload),
        tracking=not message.untracked,
    )


def asked_for(message: runtime_pb2.Policy) -> SandboxPolicy:
    """The policy that a request means. What is not set is as by default, where nothing is no value for it.

    Raises UsageError with all that is wrong with it.
    """
    whole = runtime_pb2.Policy()
    whole.CopyFrom(message)
    default = to_message(SandboxPolicy())
    for name in _NEVER_NOTHING:
        if not getattr(whole, name):
            put(whole, name, getattr(default, name))
    return from_message(whole)


_NEVER_NOTHING: Final = ("isolation", "memory", "cpus", "processes", "disk", "limits")


def _network(message: runtime_pb2.Network) -> Allow:
    return Allow(
        tuple(message.destinations),
        connections=message.connections,
        rate=message.rate,
        volume=message.volume,
    )
