"""A policy as a message: all of it arrives, since what is lost on the way is a wall or a limit less."""

from __future__ import annotations

from dataclasses import fields

from cenote_proto.v1 import runtime_pb2
from cenote_security.network import Allow
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.wire import policies

UNUSUAL = SandboxPolicy(
    isolation="strict",
    memory="300MiB",
    cpus=1.5,
    processes=17,
    disk="5MiB",
    noexec=True,
    output="2KiB",
    cell_timeout=3.5,
    runtime_timeout=70,
    limits="watchdog",
    snapshots="none",
    network=Allow(["example.com:80"], connections=3),
    env={"A": "b"},
    mounts=[Mount(source="/data", target="/in", writable=True)],
    preload=("json",),
    tracking=False,
)


def carried(policy: SandboxPolicy) -> SandboxPolicy:
    packet = policies.to_message(policy).SerializeToString()
    return policies.from_message(runtime_pb2.Policy.FromString(packet))


def test_every_field_arrives() -> None:
    """Each one differs from its default here, so that none can be forgotten."""
    default = SandboxPolicy()
    assert [] == [
        one.name for one in fields(default) if getattr(default, one.name) == getattr(UNUSUAL, one.name)
    ]
    assert UNUSUAL == carried(UNUSUAL)


def test_the_default_arrives() -> None:
    """What is not said stays unsaid."""
    assert SandboxPolicy() == carried(SandboxPolicy())
