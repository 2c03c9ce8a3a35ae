"""A sub-agent's sandbox is never weaker than its parent's."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_security.network import Allow
from cenote_security.options import definitions
from cenote_security.policy import Mount, SandboxPolicy, compared, weakness

WEB = Allow(["*.example.com", "pypi.org:443"], connections=8, rate=5, volume="1MiB")
PARENT = SandboxPolicy(
    memory="1GiB",
    cpus=2,
    processes=64,
    disk="64MiB",
    output="1MiB",
    cell_timeout=10,
    call_timeout=20,
    runtime_timeout=100,
    limits="auto",
    network=WEB,
    mounts=[Mount(source="/data"), Mount(source="/out", writable=True)],
)
WEAKER = [
    {"isolation": "none", "network": "none"},
    {"isolation": "landlock", "network": "none"},
    {"memory": "1025MiB"},
    {"cpus": 2.5},
    {"processes": 65},
    {"disk": "65MiB"},
    {"output": "2MiB"},
    {"cell_timeout": 11},
    {"cell_timeout": None},
    {"call_timeout": 21},
    {"call_timeout": None},
    {"runtime_timeout": None},
    {"limits": "watchdog"},
    {"network": Allow(["example.com"], connections=8, rate=5, volume="1MiB")},
    {"network": Allow(["*.badexample.com"], connections=8, rate=5, volume="1MiB")},
    {"network": Allow(["a.example.com:80"], connections=8, rate=5, volume="1MiB")},
    {"network": Allow(["*.pypi.org"], connections=8, rate=5, volume="1MiB")},
    {"network": replace(WEB, connections=9)},
    {"network": replace(WEB, rate=6)},
    {"network": replace(WEB, volume="2MiB")},
    {"mounts": [Mount(source="/etc")]},
    {"mounts": [Mount(source="/data/link")]},
    {"mounts": [Mount(source="/data", writable=True)]},
    {"mounts": [Mount(source="/data", target="/usr")]},
]
AS_STRONG = [
    {},
    {"isolation": "strict"},
    {"isolation": "gvisor", "network": "none"},
    {"noexec": True},
    {"network": "none"},
    {"network": Allow(["a.b.example.com", "*.b.example.com:443"], connections=1, rate=1, volume=0)},
    {"memory": "1GiB", "cpus": 2.0, "processes": 8, "cell_timeout": 9.5},
    {"limits": "cgroup"},
    {"mounts": []},
    {"mounts": [Mount(source="/out")]},
    {"env": {"A": "1"}, "preload": ()},
]


@pytest.mark.parametrize("changes", WEAKER, ids=lambda changes: "-".join(changes))
def test_what_allows_more_is_weaker(changes: dict[str, object]) -> None:
    """One field beyond the parent's is enough, and the error names it."""
    child = replace(PARENT, **changes)
    found = weakness(child, PARENT)
    assert found is not None
    field = next(iter(changes))
    assert (field, getattr(child, field), getattr(PARENT, field)) == (
        found.field,
        found.wanted,
        found.allowed,
    )


@pytest.mark.parametrize("changes", AS_STRONG, ids=lambda changes: "-".join(changes) or "equal")
def test_what_allows_no_more_is_not(changes: dict[str, object]) -> None:
    """Equal, or tighter, at the limit included."""
    assert weakness(replace(PARENT, **changes), PARENT) is None


def test_auto_stands_between_what_it_may_become() -> None:
    """Under `strict`, `auto` might resolve to `landlock`; under `landlock` it cannot be weaker."""
    strict, auto, landlock = (SandboxPolicy(isolation=level) for level in ("strict", "auto", "landlock"))
    assert "isolation" == getattr(weakness(auto, strict), "field", None)
    assert weakness(auto, landlock) is None
    assert "isolation" == getattr(weakness(landlock, auto), "field", None)


def test_what_may_not_be_executed_stays_so() -> None:
    """A child of a parent with `noexec` has it too; by itself it is a restriction."""
    plain, tight = SandboxPolicy(), SandboxPolicy(noexec=True)
    assert "noexec" == getattr(weakness(plain, tight), "field", None)
    assert weakness(tight, tight) is None


def test_no_network_at_all_permits_none() -> None:
    """A parent without a network cannot have a child with one."""
    child = SandboxPolicy(network=Allow(["pypi.org"]))
    assert "network" == getattr(weakness(child, SandboxPolicy()), "field", None)


def test_every_field_has_its_place() -> None:
    """A field that is added to the policy must be compared, or declared harmless."""
    opens_nothing = {known.name for known in definitions(SandboxPolicy) if known.option.opens_nothing}
    assert {"check_first", "env", "preload", "snapshots", "tracking"} == opens_nothing
    assert {field.name for field in fields(SandboxPolicy)} == set(compared()) | opens_nothing


POLICIES = st.builds(
    SandboxPolicy,
    isolation=st.sampled_from(["auto", "strict"]),
    memory=st.integers(2**26, 2**28),
    cpus=st.floats(0.5, 4),
    processes=st.integers(8, 11),
    cell_timeout=st.none() | st.floats(1, 3),
    network=st.just("none") | st.builds(Allow, st.sampled_from([["a.b.com"], ["*.b.com"], ["c.com:80"]])),
)


@given(POLICIES, POLICIES, POLICIES)
def test_a_chain_of_sub_agents_never_gains(first: SandboxPolicy, second: SandboxPolicy, third: SandboxPolicy):
    """If A contains B and B contains C, then A contains C."""
    assert weakness(first, first) is None
    if weakness(second, first) is None and weakness(third, second) is None:
        assert weakness(third, first) is None
