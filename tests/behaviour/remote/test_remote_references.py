"""Values that a platform stores: held while a reference exists, transferred only where they have to be."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

import numpy as np
import pytest
from tests.support.remote.cable import Cable
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import PATIENCE, until

from cenote import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime import Function, PythonRuntime, Variable
from cenote.runtime.remote import references
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.platform_client import PlatformClient
from cenote_security.errors import UnknownReferenceError, UsageError
from cenote_security.policy import SandboxPolicy

Connect = Callable[..., PythonRuntime]


def kept(platform: SmallPlatform) -> int:
    """How many values the platform has."""
    return len(platform.references.list("tests", after="", limit=1_000))


def test_between_runtimes_of_a_platform(own_platform: SmallPlatform, cable: Cable, connect: Connect) -> None:
    """Only the id of the value travels; the consumer's copy is its own."""
    first, second = connect(own_platform), connect(own_platform)
    first.execute("data = bytearray(50_000_000)")
    reference = first.share("data")
    second.execute("1")
    before = cable.passed
    second.inject(Variable("data", reference))
    second.execute("data[0] = 1")
    assert cable.passed - before < 100_000
    assert "0" == first.execute("data[0]").value
    assert "bytearray" == reference.type


def test_from_here_to_a_platform_and_back(platform: SmallPlatform, connect: Connect) -> None:
    """A value of an embedded runtime is sent, one of a platform's is fetched."""
    remote = connect(platform)
    with PythonRuntime(address="embedded", sandbox=SandboxPolicy(preload=())) as embedded:
        embedded.execute("import array\nhere = array.array('d', range(100_000))")
        remote.inject(Variable("there", embedded.share("here")))
        remote.execute("there.append(-1.0)")
        embedded.update_variable("here", remote.share("there"))
        assert "(100001, -1.0)" == embedded.execute("len(here), here[-1]").value


def test_a_reference_outlives_its_runtime(own_platform: SmallPlatform, connect: Connect) -> None:
    """It goes with its last holder."""
    first, second = connect(own_platform), connect(own_platform)
    first.execute("x = [1, 2]")
    reference = first.share("x")
    first.close()
    second.inject(Variable("x", reference))
    assert [1, 2] == second.retrieve("x")
    assert 1 == kept(own_platform)
    reference.release()
    until(lambda: 0 == kept(own_platform))
    with pytest.raises(UsageError, match="released"):
        second.update_variable("x", reference)


def test_a_forgotten_reference_is_released(own_platform: SmallPlatform, connect: Connect) -> None:
    """Garbage collection releases it."""
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    for _ in range(20):
        runtime.share("x")
    gc.collect()
    until(lambda: 0 == kept(own_platform))


def test_a_process_that_ends_does_not_wait_for_a_platform_that_has_ended(
    own_platform: SmallPlatform, connect: Connect
) -> None:
    """To give back what it held: its leases end. Else it waits for a platform that may come back."""
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    shared = runtime.share("x")
    client = PlatformClient(Destination(own_platform.address, TOKEN, wait=10 * PATIENCE, insists=True))
    found = client.references.hold(shared._held().id, "another")
    held = background().wait(found, PATIENCE, "find the value")
    own_platform.close()
    held.release()
    until(lambda: client.references._under_way)
    background().wait(client._end(), PATIENCE, "end")


@pytest.mark.slow
def test_leases_are_renewed(
    own_platform: SmallPlatform, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as the reference exists, and however short they are."""
    monkeypatch.setattr(references, "LEASE", 2.0)
    monkeypatch.setattr(references, "RENEW_EVERY", 0.1)
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    reference = runtime.share("x")

    def expires() -> float:
        return own_platform.references.list("tests", after="", limit=10)[0].expires

    until(lambda: expires() < time.time() + 2)  # the minute that it waits for its first holder has ended
    first = expires()
    until(lambda: expires() > first + 2)
    reference.release()
    until(lambda: 0 == kept(own_platform))


def test_a_value_that_is_gone(own_platform: SmallPlatform, connect: Connect) -> None:
    """The error says to share it again."""
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    reference = runtime.share("x")
    own_platform.references.close()
    with pytest.raises(UnknownReferenceError, match="share again"):
        runtime.update_variable("x", reference)


def test_host_functions_and_references(platform: SmallPlatform, connect: Connect) -> None:
    """A function may give the jail a handle; the jail may pass it on."""
    maker = connect(platform)
    maker.execute("made = list(range(1000))")
    user = connect(platform, functions=[Function(lambda: maker.share("made"), name="get", host=True)])
    assert "list" in str(user.execute("handle = get()\nhandle").value)


def agent_with(runtime: PythonRuntime) -> CaveAgent:
    return CaveAgent(ScriptedModel(["```python\nresult = data.sum()\n```", "done"]), runtime=runtime)


@pytest.mark.slow
@pytest.mark.parametrize("places", ["remote remote", "remote embedded", "embedded remote"])
def test_sub_agents(platform: SmallPlatform, connect: Connect, places: str) -> None:
    """An orchestrator's code passes a value to a sub-agent and gets one back, wherever their runtimes are."""
    orchestrators, subs = places.split()

    def make(place: str, **arguments: object) -> PythonRuntime:
        if place == "remote":
            return connect(platform, **arguments)
        return PythonRuntime(address="embedded", sandbox=SandboxPolicy(preload=()), **arguments)  # type: ignore[arg-type]

    inner = make(subs, variables=[Variable("data", np.zeros(1))])
    outer = make(orchestrators, variables=[Variable("sub", agent_with(inner))])
    code = """
import numpy
sub.runtime.update_variable("data", numpy.ones(100_000))
response = await sub.run("add it up")
total = sub.runtime.retrieve("result")
"""
    result = outer.execute(code)
    assert result.success, result.error
    assert 100_000 == outer.retrieve("total")
    inner.execute("again = None")
    handed = outer.execute(
        "handle = sub.runtime.share('data')\nsub.runtime.update_variable('again', handle)\nhandle"
    )
    assert (True, "(100000,)") == (handed.success, inner.execute("again.shape").value)
    assert "ndarray" in str(handed.value)
    for runtime in (outer, inner):
        runtime.close()


SIZES = """
import sys
from cenote.runtime import PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy

def most():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

address = sys.argv[1]
with PythonRuntime(address="embedded", sandbox=SandboxPolicy(preload=())) as here:
    with PythonRuntime(address=address, sandbox=SandboxPolicy(preload=())) as there:
        here.execute("data = bytearray(100_000_000)")
        there.execute("1")
        before = most()
        there.inject(Variable("data", here.share("data")))
        there.execute("data[-1] = 7")
        here.update_variable("data", there.share("data"))
        print(here.execute("len(data), data[-1]").value, most() - before)
"""


@pytest.mark.slow
def test_large_values_pass_in_pieces(platform: SmallPlatform) -> None:
    """100 MB to a platform and back: the client holds a few of its chunks at a time."""
    environment = {**os.environ, "CENOTE_TOKEN": TOKEN}
    command = [sys.executable, "-c", textwrap.dedent(SIZES), platform.address]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    shown, grown = out.rsplit(maxsplit=1)
    assert "(100000000, 7)" == shown
    assert int(grown) < 40
