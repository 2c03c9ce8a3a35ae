"""What a platform with its own cluster survives: each of its processes is killed while a cell runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.support.cluster.long_cell import Running, check_whole
from tests.support.cluster.standing import StandingPlatform, descriptors, living_in
from tests.support.processes import kill
from tests.waiting import PATIENCE, until

import cenote
from cenote import CaveAgent, PythonRuntime, SandboxPolicy, Variable
from cenote.models import ScriptedModel
from cenote.runtime.remote.channels import DEADLINE
from cenote_security.errors import RuntimeLostError, UnavailableError


@pytest.fixture
def runtime(platform: StandingPlatform) -> Iterator[PythonRuntime]:
    with PythonRuntime(address=platform.address, token=platform.token) as runtime:
        assert runtime.execute("before = 13").success
        yield runtime


@pytest.mark.slow
def test_a_cell_goes_on_when_its_supervisor_is_killed(
    platform: StandingPlatform, runtime: PythonRuntime
) -> None:
    """All runtime processes die: the jail runs on, and another process takes it over."""
    running = Running(runtime)
    kill(*platform.processes("ray::RuntimeActor"))
    check_whole(running)
    assert "13" == runtime.execute("before").value


@pytest.mark.long
def test_a_cell_goes_on_when_its_supervisor_hangs(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """It counts as dead: no call hangs, neither to its runtimes nor for a list of all runtimes."""
    running = Running(runtime)
    hanging = platform.processes("ray::RuntimeActor")
    for each in hanging:
        os.kill(each, signal.SIGSTOP)
    until(lambda: not set(hanging) & set(platform.processes("ray::RuntimeActor")))
    check_whole(running)
    assert "13" == runtime.execute("before").value
    assert cenote.connect(platform.address, platform.token).runtimes()


@pytest.mark.long
def test_all_goes_on_when_the_agent_hangs(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """Clients of existing runtimes are not affected. Requests for new runtimes, or for all, soon get an answer, or
    wait until the agent was replaced; none waits for ever.
    """
    running = Running(runtime)
    (agent,) = platform.processes("ray::NodeAgent")
    os.kill(agent, signal.SIGSTOP)
    here = cenote.connect(platform.address, platform.token)
    told: set[str] = set()

    def made() -> bool:
        began = time.monotonic()
        assert here.runtimes()
        assert here.describe().nodes
        try:
            with PythonRuntime(address=platform.address, token=platform.token) as other:
                assert "2" == other.execute("1 + 1").value
        except UnavailableError as error:
            told.add(str(error))
            return False
        finally:
            assert time.monotonic() - began < 3 * DEADLINE
        return True

    until(made)
    assert not told or all("does not answer, and is replaced" in each for each in told)
    assert [agent] != platform.processes("ray::NodeAgent")
    check_whole(running)
    assert "13" == runtime.execute("before").value


@pytest.mark.long
def test_jails_are_started_when_the_nursery_hangs(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """It is replaced; jails that it has started continue meanwhile."""
    (nursery,) = platform.processes("ray::NurseryActor")
    os.kill(nursery, signal.SIGSTOP)
    assert "13" == runtime.execute("before").value
    with PythonRuntime(address=platform.address, token=platform.token) as other:
        assert "2" == other.execute("1 + 1").value
    assert [nursery] != platform.processes("ray::NurseryActor")


@pytest.mark.slow
def test_a_cell_goes_on_when_the_agent_is_killed(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """The process that serves the runtime does not need it meanwhile; new runtimes wait until it is back."""
    running = Running(runtime)
    kill(*platform.processes("ray::NodeAgent"))
    with PythonRuntime(address=platform.address, token=platform.token) as other:
        assert "2" == other.execute("1 + 1").value
    check_whole(running)


@pytest.mark.slow
def test_a_cell_goes_on_when_agent_and_supervisors_are_killed(
    platform: StandingPlatform, runtime: PythonRuntime
) -> None:
    """Both at once: the next agent finds what is in the descriptor store."""
    running = Running(runtime)
    kill(*platform.processes("ray::NodeAgent"), *platform.processes("ray::RuntimeActor"))
    check_whole(running)


@pytest.mark.slow
def test_a_cell_goes_on_when_the_store_is_killed(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """Supervisors start another one and fill it, so a supervisor may die after that."""
    running = Running(runtime)
    kill(platform.descriptor_store)
    until(lambda: any(key.endswith("/assignment") for key in platform.kept("runtime/")))
    kill(*platform.processes("ray::RuntimeActor"))
    check_whole(running)


@pytest.mark.slow
def test_a_cell_goes_on_when_the_gateway_is_killed(
    platform: StandingPlatform, runtime: PythonRuntime
) -> None:
    """Clients have direct connections. The next gateway starts by itself, and finds cluster and runtimes again."""
    with PythonRuntime(address=platform.address, token=platform.token, name="kept") as named:
        assert named.execute("x = 6").success
        running = Running(runtime)
        cluster, gateway = platform.cluster, platform.gateway
        kill(gateway)
        check_whole(running)
        until(lambda: gateway != platform.gateway and platform.answers)
        assert cluster == platform.cluster
        assert "6" == named.execute("x").value


@pytest.mark.slow
def test_runtimes_outlive_the_cluster(platform: StandingPlatform) -> None:
    """Without its raylet nothing of Ray works. The platform comes back with another cluster, on the same machine,
    and finds its jails there.
    """
    platform.command("runtime", "create", "lasting")
    platform.command("runtime", "exec", "lasting", "-c", "before = 13")
    former, gateway = platform.cluster, platform.gateway
    kill(*platform.raylets())
    until(lambda: gateway != platform.gateway and platform.answers)
    assert former["pid"] != platform.cluster["pid"]
    assert not living_in(former["pid"])
    assert "13\n" == platform.command("runtime", "exec", "lasting", "-c", "print(before)").stdout
    platform.command("runtime", "rm", "lasting")


@pytest.mark.slow
def test_a_runtime_that_nobody_held_any_more(platform: StandingPlatform) -> None:
    """Killed together with the descriptor store, its supervisor leaves nothing to a successor: that is reported,
    soon, with the reason; another runtime of that name can be created.
    """
    here = cenote.connect(platform.address, platform.token)
    with here.runtime("unlucky") as runtime:
        assert runtime.execute("before = 13").success
        kill(platform.descriptor_store, *platform.processes("ray::RuntimeActor"))
        began = time.monotonic()
        with pytest.raises(RuntimeLostError, match=r"this runtime is lost .*were killed together"):
            runtime.execute("before")
        assert time.monotonic() - began < PATIENCE
    assert "lost" == here.find("unlucky").state
    here.delete("unlucky")
    with here.runtime("unlucky") as another:
        assert "2" == another.execute("1 + 1").value
    here.delete("unlucky")


DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.slow
def test_a_cell_that_kills_its_process(runtime: PythonRuntime) -> None:
    """The state is as before the cell."""
    assert runtime.execute("x = 1").success
    result = runtime.execute(DIE)
    assert (False, "rolled_back") == (result.success, result.state)
    assert "1" == runtime.execute("x").value


def test_a_jail_that_is_killed_is_reported(platform: StandingPlatform) -> None:
    """Without snapshots the state is lost, the result says so, and the next call works."""
    forgetful = SandboxPolicy(snapshots="none")
    with PythonRuntime(sandbox=forgetful, address=platform.address, token=platform.token) as runtime:
        result = runtime.execute(DIE)
        assert (False, "lost") == (result.success, result.state)
        assert "2" == runtime.execute("1 + 1").value


@pytest.mark.slow
def test_a_cell_goes_on_when_the_nursery_is_killed(
    platform: StandingPlatform, runtime: PythonRuntime
) -> None:
    """Jails outlive the process that started them; another one starts the next jail."""
    running = Running(runtime)
    kill(*platform.processes("ray::NurseryActor"))
    check_whole(running)
    with PythonRuntime(address=platform.address, token=platform.token) as other:
        assert "2" == other.execute("1 + 1").value


@pytest.mark.slow
def test_nothing_is_left_of_runtimes(platform: StandingPlatform) -> None:
    """After they are closed the descriptor store has nothing of them, and their host no additional descriptors."""
    until(lambda: not platform.kept("runtime/"))
    use(platform, 3)
    actors = platform.processes("ray::RuntimeActor")
    counted = sum(map(descriptors, actors))
    use(platform, 6)
    until(lambda: sum(map(descriptors, actors)) <= counted + 2 * len(actors))
    assert [] == platform.kept("spare/")


def use(platform: StandingPlatform, times: int) -> None:
    for _ in range(times):
        with PythonRuntime(address=platform.address, token=platform.token) as runtime:
            assert "1" == runtime.execute("1").value
    until(lambda: not platform.kept("runtime/"))


@pytest.mark.slow
def test_a_value_outlives_its_maker(platform: StandingPlatform) -> None:
    """Shared in one runtime, which is deleted; available to another one, on another process."""
    with PythonRuntime(address=platform.address, token=platform.token) as maker:
        maker.execute("data = list(range(100_000))")
        reference = maker.share("data")
    kill(*platform.processes("ray::RuntimeActor"))
    with PythonRuntime(address=platform.address, token=platform.token) as user:
        user.inject(Variable("data", reference))
        assert "4999950000" == user.execute("sum(data)").value


@pytest.mark.slow
def test_a_handle_outlives_the_supervisor(platform: StandingPlatform, runtime: PythonRuntime) -> None:
    """A jail's handle to another runtime's value: the successor knows it under the same number, and releases it in
    the end.
    """
    with PythonRuntime(address=platform.address, token=platform.token) as other:
        other.execute("data, again = list(range(100_000)), None")
        runtime.inject(Variable("sub", CaveAgent(ScriptedModel([]), other)))
        assert runtime.execute("handle = sub.runtime.share('data')").success
        kill(*platform.processes("ray::RuntimeActor"))
        result = runtime.execute("sub.runtime.update_variable('again', handle)")
        assert result.success, result.error
        assert "100000" == other.execute("len(again)").value
        assert runtime.execute("del handle").success
        until(lambda: not any(" handle " in key for key in platform.kept("lease/")))
