"""A durable runtime on a cluster: it sleeps in the store, and is there again when everything has died at once."""

from __future__ import annotations

import json

import pytest
from tests.cluster.standing import StandingPlatform, kill, living_in, until


def shown(platform: StandingPlatform, name: str) -> dict[str, object]:
    return dict(json.loads(platform.command("runtime", "show", name, "--json").stdout))


def printed(platform: StandingPlatform, name: str, code: str) -> str:
    return platform.command("runtime", "exec", name, "-c", code).stdout.strip()


@pytest.mark.timeout(180)
def test_a_runtime_outlives_everything(platform: StandingPlatform) -> None:
    """Gateway, watcher, cluster, agents, hosts, keeper and jails, killed at once: `cenote up` has it again."""
    platform.command("runtime", "create", "kept", "--durable", "--hibernate-after", "0.5")
    printed(platform, "kept", "x = [1]; alias = x; open('file', 'w').write('text')")
    until(lambda: shown(platform, "kept")["state"] == "hibernated")
    until(lambda: not [key for key in platform.kept("runtime/") if str(shown(platform, "kept")["id"]) in key])
    printed(platform, "kept", "alias.append(2)")
    former = platform.cluster
    kill(platform.watcher, platform.gateway, platform.keeper, *living_in(former["pid"]))
    platform.up()
    assert former["pid"] != platform.cluster["pid"]
    assert ("hibernated", True, 2) == tuple(
        shown(platform, "kept")[key] for key in ("state", "durable", "steps")
    )
    assert "[1, 2] text" == printed(platform, "kept", "print(x, open('file').read())")
    history = json.loads(platform.command("runtime", "history", "kept", "--json").stdout)
    assert [1, 2, 3] == [step["number"] for step in history]
    platform.command("runtime", "rm", "kept")
