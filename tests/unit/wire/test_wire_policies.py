"""A policy is the same after the wire, and an invalid one is refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UsageError
from cenote_security.network import Allow, Secret
from cenote_security.options import parse_size
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.wire.policies import from_policy, to_policy

POLICIES = [
    SandboxPolicy(),
    SandboxPolicy(
        isolation="strict",
        memory="3GiB",
        cpus=0.5,
        processes=9,
        disk="2MiB",
        noexec=True,
        output=12_345,
        cell_timeout=2.5,
        call_timeout=1.5,
        runtime_timeout=60,
        limits="watchdog",
        snapshots="none",
        env={"A": "1", "B": ""},
        mounts=[Mount(source="/usr", target="/data", writable=False)],
        preload=("json",),
        tracking=False,
        environment="data",
        check_first=True,
    ),
    SandboxPolicy(
        network=Allow(
            ["example.org", "*.example.com:8443"],
            connections=3,
            volume="5MiB",
            credentials={
                "example.org": Secret("Bearer x"),
                "a.example.com:8443": Secret("y", header="X-Key", paths=["/a/*", "/b"]),
            },
        )
    ),
]


def settings(policy: SandboxPolicy) -> dict[str, object]:
    """The policy's meaning: sizes in bytes, in whichever form they were written."""
    said = {field.name: getattr(policy, field.name) for field in fields(policy)}
    said["mounts"] = [(mount.source, mount.target, mount.writable) for mount in policy.mounts]
    said |= {name: parse_size(said[name]) for name in ("memory", "disk", "output")}
    if isinstance(policy.network, Allow):
        allow = policy.network
        said["network"] = (
            tuple(allow.destinations),
            allow.connections,
            allow.rate,
            allow.volume_bytes,
            dict(allow.credentials),
        )
    return said


def test_everything_is_everything() -> None:
    """A new setting must be tested here: it differs from its default in one of these."""
    default, *others = map(settings, POLICIES)
    assert set(default) == {name for one in others for name in one if one[name] != default[name]}


@pytest.mark.parametrize("policy", POLICIES, ids=["default", "everything", "network"])
def test_a_policy(policy: SandboxPolicy) -> None:
    """Each setting."""
    back = to_policy(runtime_pb2.Policy.FromString(from_policy(policy).SerializeToString()))
    assert settings(policy) == settings(back)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("isolation", "flimsy"),
        ("memory", 1),
        ("cpus", -1.0),
        ("cpus", float("nan")),
        ("processes", 0),
        ("cell_timeout", -1.0),
        ("call_timeout", -1.0),
        ("cell_timeout", float("inf")),
        ("limits", "none"),
    ],
)
def test_what_is_no_policy(field: str, value: object) -> None:
    """The message may come from any peer: it obeys the rules of the policy itself."""
    message = from_policy(SandboxPolicy())
    setattr(message, field, value)
    with pytest.raises(UsageError):
        to_policy(message)


@pytest.mark.parametrize(
    "policy",
    [
        SandboxPolicy(env={"A": "\udcff"}),
        SandboxPolicy(env={"A\udcff": ""}),
        SandboxPolicy(mounts=[Mount(source="/data/\udcff")]),
    ],
    ids=["a value", "a name", "a path"],
)
def test_what_is_no_text_is_refused_not_changed(policy: SandboxPolicy) -> None:
    """Bytes that are not UTF-8 are valid on this machine; escaped they would have another meaning."""
    with pytest.raises(UsageError, match="no text in UTF-8"):
        from_policy(policy)
