"""A durable runtime on a cluster: it sleeps in the store, and survives the death of every process at once."""

from __future__ import annotations

import pytest
from tests.support.cluster.standing import StandingPlatform, living_in
from tests.support.processes import kill
from tests.waiting import until

from cenote import SandboxPolicy, connect

SANDBOX = SandboxPolicy(preload=())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_runtime_outlives_everything(platform: StandingPlatform) -> None:
    """Gateway, watcher, cluster, agents, hosts, descriptor store and jails, all killed: `cenote up` restores it."""
    before = connect(platform.address, platform.token)
    with before.runtime("kept", sandbox=SANDBOX, durable=True, hibernate_after=0.5) as runtime:
        assert runtime.execute("x = [1]; alias = x; open('file', 'w').write('text')").success
    until(lambda: before.find("kept").state == "hibernated")
    until(lambda: not any(before.find("kept").id in key for key in platform.kept("runtime/")))
    with before.runtime("kept") as runtime:
        assert "[1, 2]" == runtime.execute("alias.append(2); x").value
    former = platform.cluster
    kill(platform.watcher, platform.gateway, platform.descriptor_store, *living_in(former["pid"]))
    platform.up()
    assert former["pid"] != platform.cluster["pid"]
    after = connect(platform.address, platform.token)
    found = after.find("kept")
    assert ("hibernated", True, 2) == (found.state, found.durable, found.steps)
    with after.runtime("kept") as runtime:
        assert "([1, 2], 'text')" == runtime.execute("alias, open('file').read()").value
        assert [1, 2, 3] == [step.number for step in runtime.state.history]
    after.delete("kept")
