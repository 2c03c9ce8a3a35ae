"""Messages between a client and its zygote survive the trip."""

from __future__ import annotations

from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.walls.level import Home
from cenote_worker.zygote.spec import JailStartRequest, ZygoteSpec


def test_a_zygote_s_spec() -> None:
    """JSON and back gives an equal value, mounts included."""
    spec = ZygoteSpec(
        isolation="auto",
        preload=("numpy",),
        mounts=(Mount(source="/data"), Mount(source="/out", target="/o", writable=True)),
        search=("/lib",),
        visible=("/usr/lib", "/\udcff"),
        entry="worker",
        client=7,
    )
    assert spec == ZygoteSpec.from_json(spec.to_json())


def test_a_jail_s_request() -> None:
    """The policy's numbers in bytes; its variables are left out, since the zygote must not read them."""
    policy = SandboxPolicy(memory="64MiB", disk="1MiB", processes=9, cpus=0.5, env={"A": "secret"})
    request = JailStartRequest.of(policy, 3)
    assert request == JailStartRequest.from_json(request.to_json())
    assert "secret" not in request.to_json()
    assert (64 * 2**20, 2**20, 9, 0.5, True) == (
        request.policy.memory,
        request.policy.disk,
        request.policy.processes,
        request.policy.cpus,
        request.has_environment,
    )


def test_what_a_request_becomes() -> None:
    """The limit is the policy's memory on top of the preload's; the worker gets the policy's."""
    request = JailStartRequest.of(SandboxPolicy(memory="64MiB"), 3)
    assert 100 + 64 * 2**20 == request.allowance(seat=1, base_memory=100).memory
    settings = request.settings(Home(workdir="/w", temporary="/t"), "strict")
    assert (64 * 2**20, "/w", "/t", "strict") == (
        settings.policy.memory,
        settings.workdir,
        settings.temporary,
        settings.isolation,
    )
