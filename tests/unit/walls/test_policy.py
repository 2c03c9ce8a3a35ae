"""The values that a policy accepts. Others are refused when it is written, not when a jail starts."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

from cenote_security.errors import UsageError
from cenote_security.options import parse_size
from cenote_security.policy import Mount, SandboxPolicy, check_seconds


@pytest.mark.parametrize(
    ("size", "expected"),
    [(7, 7), ("7", 7), ("1KiB", 1024), (" 1.5 GB ", 1_500_000_000), ("512mib", 512 * 2**20), ("0", 0)],
)
def test_sizes(size: int | str, expected: int) -> None:
    """Bytes, or a number with a unit of 1000 or of 1024."""
    assert expected == parse_size(size)


@pytest.mark.parametrize("size", [-1, 2.5, None, True, "", "x", "1e9", "-1GB", "1 PB", "1GB2"])
def test_what_is_no_size(size: Any) -> None:
    """A guess would be an unintended limit."""
    with pytest.raises(UsageError):
        parse_size(size)


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "63MiB"},
        {"memory": 2**63},
        {"disk": 0},  # to tmpfs, no limit at all
        {"disk": 2**20 - 1},
        {"output": 10**30},
        {"cpus": 0},
        {"cpus": math.nan},
        {"cpus": "2"},
        {"processes": 7},
        {"processes": 2**22 + 1},
        {"processes": 8.5},
        {"cell_timeout": 0},
        {"cell_timeout": math.inf},
        {"call_timeout": 0},
        {"call_timeout": math.inf},
        {"isolation": "weak"},
        {"isolation": "none", "noexec": True},
        {"noexec": 1},
        {"network": "all"},
        {"env": None},
        {"env": {"A": 1}},
        {"env": {"": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\0y"}},
        {"mounts": ["/data"]},
        {"preload": "numpy"},
        {"preload": [5]},
    ],
    ids=str,
)
def test_policies_that_no_jail_can_keep(wrong: dict[str, Any]) -> None:
    """Wrong types, limits out of range, invalid names."""
    with pytest.raises(UsageError):
        SandboxPolicy(**wrong)


def test_the_least_that_a_policy_may_grant() -> None:
    """Each limit is accepted at its edge."""
    policy = SandboxPolicy(memory="64MiB", disk="1MiB", output=0, cpus=0.01, processes=8, cell_timeout=1e-9)
    assert (64 * 2**20, 2**20, 0) == (policy.memory_bytes, policy.disk_bytes, policy.output_bytes)


@pytest.mark.parametrize("path", ["relative", "/a/../b", "", "/a\0b", 5])
def test_mounts_need_plain_absolute_paths(path: Any) -> None:
    """A path that means something else elsewhere is refused."""
    with pytest.raises(UsageError):
        Mount(source=path)


def test_policies_are_handed_on() -> None:
    """A policy passes to another process, into a copy, and into a set, and stays frozen."""
    policy = SandboxPolicy(memory="64MiB", env={"A": "b"}, mounts=[Mount(source="/data")])
    for other in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), copy.copy(policy)):
        assert {policy} == {other}
        with pytest.raises(TypeError):
            other.env["A"] = "c"


def test_policies_are_values() -> None:
    """A given list or dictionary can be changed later without effect."""
    variables = {"A": "1"}
    policy = SandboxPolicy(env=variables, preload=["json"])
    variables["A"] = "2"
    assert ("1", ("json",)) == (policy.env["A"], policy.preload)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "5"])
def test_seconds(seconds: object) -> None:
    """Positive and finite, or None; the error names the wrong argument."""
    check_seconds(None, "patience")
    check_seconds(0.5, "patience")
    with pytest.raises(UsageError, match="patience"):
        check_seconds(seconds, "patience")


def test_no_call_is_without_a_limit() -> None:
    """Calls that run code of the jail have the limit of a cell, if no other is set, and always one."""
    assert 600 == SandboxPolicy().call_seconds
    assert 3 == SandboxPolicy(cell_timeout=3).call_seconds
    assert 60 == SandboxPolicy(cell_timeout=3, call_timeout=60).call_seconds
